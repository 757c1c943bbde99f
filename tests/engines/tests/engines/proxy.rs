//! The proxy between a client and an engine.

use std::io::ErrorKind;

use dueline_tests_engines::Proxy;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// A listener that stands for an engine, and a proxy to it.
async fn engine_and_proxy() -> (TcpListener, Proxy) {
    let engine = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::to(&format!("http://{}", engine.local_addr().unwrap()));
    (engine, proxy)
}

async fn connect(proxy: &Proxy) -> std::io::Result<TcpStream> {
    TcpStream::connect(proxy.url().strip_prefix("http://").unwrap()).await
}

#[tokio::test]
async fn a_cut_closes_both_sides_of_all_connections_and_no_later_one() {
    let (engine, proxy) = engine_and_proxy().await;
    let mut client = connect(&proxy).await.unwrap();
    let (mut served, _) = engine.accept().await.unwrap();
    client.write_all(b"ping").await.unwrap();
    let mut ping = [0; 4];
    served.read_exact(&mut ping).await.unwrap();
    assert_eq!(&ping, b"ping");
    proxy.cut();
    assert_eq!(client.read(&mut ping).await.unwrap_or(0), 0);
    assert_eq!(served.read(&mut ping).await.unwrap_or(0), 0);

    let _client = connect(&proxy).await.unwrap();
    engine.accept().await.unwrap();
}

#[tokio::test]
async fn refused_connections_fail_at_once_while_existing_ones_continue() {
    let (engine, proxy) = engine_and_proxy().await;
    let mut existing = connect(&proxy).await.unwrap();
    let (mut served, _) = engine.accept().await.unwrap();
    proxy.refuse(true);
    let refused = connect(&proxy).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    served.write_all(b"!").await.unwrap();
    assert_eq!(existing.read_u8().await.unwrap(), b'!');

    proxy.refuse(false);
    let _client = connect(&proxy).await.unwrap();
    engine.accept().await.unwrap();
}
