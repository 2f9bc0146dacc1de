// The JDK's HTTP client. Input and output are those of clients.py.

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.zip.Adler32;

public class Client {
    static final FileOutputStream OUT = new FileOutputStream(FileDescriptor.out);

    static String hex(byte[] bytes) {
        return bytes.length == 0 ? "-" : HexFormat.of().formatHex(bytes);
    }

    static String hex(String text) {
        return hex(text.getBytes(StandardCharsets.ISO_8859_1));
    }

    static String get(HttpClient client, String url) {
        try {
            HttpRequest request = HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofSeconds(30)).build();
            HttpResponse<byte[]> response = client.send(request, HttpResponse.BodyHandlers.ofByteArray());
            byte[] body = response.body();
            Adler32 sum = new Adler32();
            sum.update(body);
            StringBuilder seen = new StringBuilder("R," + hex(String.valueOf(response.statusCode())) + ",-," + body.length + ","
                + sum.getValue() + "," + hex(Arrays.copyOf(body, Math.min(body.length, 512))));
            response.headers().map().forEach((name, values) ->
                values.forEach(value -> seen.append("," + hex(name) + ":" + hex(value))));
            return seen.toString();
        } catch (Exception error) {
            return "E";
        }
    }

    // A line can be longer than what the system writes in one piece.
    static synchronized void report(byte[] line) throws IOException {
        OUT.write(line);
    }

    static void visit(String line) {
        String[] words = line.split(" ");
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        String start = words[1] + "/q" + words[0];
        String seen = "C " + words[0] + " " + get(client, start + "-r") + " " + get(client, start + "-ok") + "\n";
        try {
            report(seen.getBytes(StandardCharsets.US_ASCII));
        } catch (IOException error) {
            System.exit(1);
        }
    }

    public static void main(String[] arguments) throws IOException {
        ExecutorService threads = Executors.newFixedThreadPool(32);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String one = line;
            threads.submit(() -> visit(one));
        }
        threads.shutdown();
    }
}
