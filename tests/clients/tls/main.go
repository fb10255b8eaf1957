// A client of crypto/tls: it waits on many connections at once, and polls again on each.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const connections = 50

func main() {
	address, file := os.Args[1], os.Args[2]
	pem, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	config := &tls.Config{RootCAs: roots, ServerName: "one.test"}
	var answered atomic.Int32
	var group sync.WaitGroup
	for range connections {
		group.Go(func() {
			client := &http.Client{
				Transport: &http.Transport{TLSClientConfig: config.Clone()},
				Timeout:   60 * time.Second,
			}
			for range 5 {
				if body, err := get(client, "https://"+address+"/poll/a"); err != nil || body != "value" {
					fmt.Fprintln(os.Stderr, body, err)
					return
				}
			}
			answered.Add(1)
		})
	}
	group.Wait()
	fmt.Printf("%d of %d\n", answered.Load(), connections)
}

func get(client *http.Client, url string) (string, error) {
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}
