// Verifies server certificates with the JDK's verifier: Judge ROOT ISSUING LEAF... [-- ROOT ISSUING LEAF...]..., all
// in PEM. Prints a line for each leaf.
import java.io.FileInputStream;
import java.security.cert.CertPathValidator;
import java.security.cert.CertPathValidatorException;
import java.security.cert.CertificateFactory;
import java.security.cert.PKIXParameters;
import java.security.cert.TrustAnchor;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

class Judge {
    public static void main(String[] files) throws Exception {
        List<String> group = new ArrayList<>();
        for (String file : files) {
            if (!file.equals("--")) {
                group.add(file);
                continue;
            }
            judge(group);
            group.clear();
        }
        judge(group);
    }

    private static void judge(List<String> files) throws Exception {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        List<X509Certificate> read = new ArrayList<>();
        for (String file : files) {
            try (FileInputStream input = new FileInputStream(file)) {
                read.add((X509Certificate) factory.generateCertificate(input));
            }
        }
        PKIXParameters parameters = new PKIXParameters(Set.of(new TrustAnchor(read.get(0), null)));
        parameters.setRevocationEnabled(false);
        CertPathValidator validator = CertPathValidator.getInstance("PKIX");
        for (X509Certificate leaf : read.subList(2, read.size())) {
            try {
                validator.validate(factory.generateCertPath(List.of(leaf, read.get(1))), parameters);
                System.out.println("accepted");
            } catch (CertPathValidatorException | IndexOutOfBoundsException error) {
                // It compares addresses of different lengths, and then fails, which also ends the handshake.
                System.out.println("refused: " + error);
            }
        }
    }
}
