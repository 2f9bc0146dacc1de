// Command client is Go's HTTP client. Input and output are those of clients.py.
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"hash/adler32"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

func text(value string) string {
	if value == "" {
		return "-"
	}
	return hex.EncodeToString([]byte(value))
}

func get(client *http.Client, url string) string {
	response, err := client.Get(url)
	if err != nil {
		return "E"
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "E"
	}
	seen := fmt.Sprintf("R,%s,-,%d,%d,%s", text(fmt.Sprint(response.StatusCode)), len(body), adler32.Checksum(body),
		text(string(body[:min(len(body), 512)])))
	for name, values := range response.Header {
		for _, value := range values {
			seen += "," + text(name) + ":" + text(value)
		}
	}
	return seen
}

func visit(line string) {
	number, base, _ := strings.Cut(line, " ")
	transport := &http.Transport{}
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	defer transport.CloseIdleConnections()
	first := get(client, base+"/q"+number+"-r")
	os.Stdout.WriteString("C " + number + " " + first + " " + get(client, base+"/q"+number+"-ok") + "\n")
}

func main() {
	slots := make(chan struct{}, 32)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		slots <- struct{}{}
		go func(line string) {
			visit(line)
			<-slots
		}(lines.Text())
	}
}
