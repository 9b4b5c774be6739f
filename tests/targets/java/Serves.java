import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

/** A web server whose threads answer with what they have computed. It writes "ready" and its port, and ends with 0 after a
    line on standard input. */
public class Serves {
    public static void main(String[] arguments) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.createContext("/", exchange -> {
            long sum = 0;
            for (long n = 0; n < 2000; n++) sum += n * n;
            byte[] body = Long.toString(sum).getBytes();
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
        System.out.println("ready " + server.getAddress().getPort());
        int read = System.in.read();
        System.exit(read > 0 ? 0 : 1);
    }
}
