import org.eclipse.jetty.server.Connector;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import software.amazon.dynamodb.services.local.main.ServerRunner;

/** Starts DynamoDB Local on loopback. By default it listens on all addresses, and it has no option to change that. */
public final class Loopback {
    private Loopback() {}

    public static void main(String[] arguments) throws Exception {
        var local = ServerRunner.createServerFromCommandLineArgs(arguments);
        var field = local.getClass().getDeclaredField("server");
        field.setAccessible(true);
        for (Connector connector : ((Server) field.get(local)).getConnectors()) {
            ((ServerConnector) connector).setHost("127.0.0.1");
        }
        local.start();
        local.join();
    }
}
