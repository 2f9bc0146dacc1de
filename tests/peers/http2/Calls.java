// The calls of tests/runtimes/http2_clients.rs by java.net.http: URL CA [PROXY].
import java.io.FileInputStream;
import java.net.InetSocketAddress;
import java.net.ProxySelector;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

public class Calls {
    public static void main(String[] arguments) throws Exception {
        String url = arguments[0];
        HttpClient.Builder builder = HttpClient.newBuilder().version(HttpClient.Version.HTTP_2).sslContext(trusting(arguments[1]));
        if (arguments.length > 2 && !arguments[2].isEmpty()) {
            URI proxy = URI.create(arguments[2]);
            builder.proxy(ProxySelector.of(new InetSocketAddress(proxy.getHost(), proxy.getPort())));
        }
        HttpClient client = builder.build();
        show(client.send(request(url + "/hello", "GET", BodyPublishers.noBody()), BodyHandlers.ofString()));
        show(client.send(request(url + "/length", "POST", BodyPublishers.ofByteArray(new byte[1 << 20])), BodyHandlers.ofString()));
        show(client.send(request(url + "/not-modified", "GET", BodyPublishers.noBody()), BodyHandlers.ofString()));
        HttpResponse<String> head = client.send(request(url + "/hello", "HEAD", BodyPublishers.noBody()), BodyHandlers.ofString());
        System.out.println(head.headers().firstValue("content-length").orElse("none") + " " + head.statusCode());
        List<CompletableFuture<HttpResponse<String>>> together = IntStream.rangeClosed(1, 20)
            .mapToObj(number -> request(url + "/together/" + number, "GET", BodyPublishers.noBody()))
            .map(request -> client.sendAsync(request, BodyHandlers.ofString())).toList();
        for (CompletableFuture<HttpResponse<String>> response : together) {
            System.out.println(response.get().body().length() + " " + response.get().statusCode());
        }
    }

    private static HttpRequest request(String url, String method, BodyPublisher body) {
        return HttpRequest.newBuilder(URI.create(url)).method(method, body).build();
    }

    private static void show(HttpResponse<String> response) {
        System.out.println(response.body() + " " + response.statusCode());
    }

    private static SSLContext trusting(String ca) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (FileInputStream file = new FileInputStream(ca)) {
            store.setCertificateEntry("authority", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        return context;
    }
}
