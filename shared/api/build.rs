//! Compiles the protocol without `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    #[cfg(feature = "grpc")]
    compile()?;
    Ok(())
}

#[cfg(feature = "grpc")]
fn compile() -> Result<(), Box<dyn Error>> {
    use std::{env, fs, path::PathBuf};

    use prost::Message as _;

    let mut files: Vec<PathBuf> = fs::read_dir("proto/dueline/v1")?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    // The order of files must not depend on the file system, or else builds could not be repeated.
    files.sort();
    let descriptors = protox::compile(files, ["proto"])?;
    // Tools read the protocol from the server itself.
    let path = PathBuf::from(env::var("OUT_DIR")?).join("dueline.v1.bin");
    fs::write(path, descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
