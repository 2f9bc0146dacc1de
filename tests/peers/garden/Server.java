// The JDK's own HTTP server: reports each request on standard output before it responds.

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.FileOutputStream;
import java.io.FileDescriptor;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.concurrent.Executors;
import java.util.zip.Adler32;

public class Server {
    static final FileOutputStream OUT = new FileOutputStream(FileDescriptor.out);

    static String hex(byte[] bytes) {
        return bytes.length == 0 ? "-" : HexFormat.of().formatHex(bytes);
    }

    static String hex(String text) {
        return hex(text.getBytes(StandardCharsets.ISO_8859_1));
    }

    // A line can be longer than what the system writes in one piece.
    static synchronized void report(byte[] line) throws IOException {
        OUT.write(line);
    }

    static void serve(HttpExchange exchange) throws IOException {
        byte[] body = exchange.getRequestBody().readAllBytes();
        Adler32 sum = new Adler32();
        sum.update(body);
        StringBuilder line = new StringBuilder("R " + hex(exchange.getRequestMethod()) + " " + hex(exchange.getRequestURI().toString())
            + " " + body.length + " " + sum.getValue() + " " + hex(Arrays.copyOf(body, Math.min(body.length, 512))));
        exchange.getRequestHeaders().forEach((name, values) ->
            values.forEach(value -> line.append(" " + hex(name) + ":" + hex(value))));
        report((line + "\n").getBytes(StandardCharsets.US_ASCII));
        String found = exchange.getRequestHeaders().getFirst("x-case");
        exchange.getResponseHeaders().set("x-echo", found == null ? "-" : found.replaceAll("[^a-z0-9-]", ""));
        boolean bodiless = exchange.getRequestMethod().equals("HEAD");
        exchange.sendResponseHeaders(200, bodiless ? -1 : 3);
        if (!bodiless) exchange.getResponseBody().write("ok\n".getBytes(StandardCharsets.US_ASCII));
        exchange.close();
    }

    public static void main(String[] arguments) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 1024);
        server.createContext("/", Server::serve);
        server.setExecutor(Executors.newFixedThreadPool(64));
        server.start();
    }
}
