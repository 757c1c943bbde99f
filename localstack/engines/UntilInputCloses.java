import java.io.IOException;
import java.util.Arrays;

/** Runs the main of another class, and ends with its standard input: whoever holds the other end takes it along. */
public final class UntilInputCloses {
    private UntilInputCloses() {}

    public static void main(String[] arguments) throws Exception {
        var watch = new Thread(UntilInputCloses::watch, "input");
        watch.setDaemon(true);
        watch.start();
        var rest = Arrays.copyOfRange(arguments, 1, arguments.length);
        Class.forName(arguments[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
    }

    private static void watch() {
        try {
            while (System.in.read() >= 0) {
                // Nobody has anything to say.
            }
        } catch (IOException gone) {
            // As good as closed.
        }
        // At once, without the hooks of an orderly end: nothing is kept.
        Runtime.getRuntime().halt(0);
    }
}
