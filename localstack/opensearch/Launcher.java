import java.nio.file.Path;
import java.util.Collections;
import java.util.concurrent.CountDownLatch;
import org.opensearch.common.logging.LogConfigurator;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;

/**
 * Runs one OpenSearch node in the foreground until the process is told to end; data survive.
 *
 * <p>Arguments: the laid out home (lib, modules, plugins, config), then settings as {@code name=value}.
 * The distribution's own entry point is not used because it wants a keystore and refuses to run as root,
 * which is what a container or a build machine often is.
 */
public final class Launcher {
    private static final String NAME = "local";

    /** {@link Node} keeps the constructor that takes no plugin list for itself and its subclasses. */
    private static final class LocalNode extends Node {
        LocalNode(Environment environment) {
            super(environment, Collections.emptyList(), true);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Path home = Path.of(arguments[0]).toAbsolutePath();
        Settings.Builder settings = Settings.builder().put("path.home", home.toString()).put("node.name", NAME);
        for (int i = 1; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        Environment environment = InternalSettingsPreparer.prepareEnvironment(
                settings.build(), Collections.emptyMap(), home.resolve("config"), () -> NAME);
        LogConfigurator.registerErrorListener();
        LogConfigurator.setNodeName(NAME);
        LogConfigurator.configure(environment);

        Node node = new LocalNode(environment);
        CountDownLatch closed = new CountDownLatch(1);
        // Registered before the start: a SIGTERM that arrives while the node starts closes it as cleanly.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                node.close();
            } catch (Exception exception) {
                exception.printStackTrace();
            } finally {
                closed.countDown();
            }
        }));
        node.start();
        closed.await();
    }
}
