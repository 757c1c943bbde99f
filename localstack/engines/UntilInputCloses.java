import java.io.IOException;
import java.util.Arrays;

/** Runs the main method of another class, and ends when standard input closes, that is, with the parent process. */
public final class UntilInputCloses {
    private UntilInputCloses() {}

    public static void main(String[] arguments) throws Exception {
        var waitForEnd = new Thread(UntilInputCloses::waitForEnd, "input");
        waitForEnd.setDaemon(true);
        waitForEnd.start();
        var rest = Arrays.copyOfRange(arguments, 1, arguments.length);
        Class.forName(arguments[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
    }

    private static void waitForEnd() {
        try {
            while (System.in.read() >= 0) {
                // Input is ignored.
            }
        } catch (IOException gone) {
            // Treated as closed.
        }
        // Ends immediately, without shutdown hooks, because no data is kept.
        Runtime.getRuntime().halt(0);
    }
}
