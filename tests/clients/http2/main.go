// A client of net/http that speaks HTTP/2: many polls wait on one connection.
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

const polls = 50

func main() {
	address, file := os.Args[1], os.Args[2]
	pem, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	client := &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: "one.test"},
			ForceAttemptHTTP2: true,
		},
		Timeout: 60 * time.Second,
	}
	// The first request makes the connection that all others share.
	if err := get(client, "https://"+address+"/poll/a", "value"); err != nil {
		panic(err)
	}
	var answered atomic.Int32
	var group sync.WaitGroup
	for range polls {
		group.Go(func() {
			if err := get(client, "https://"+address+"/poll/b?wait=30", "news"); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return
			}
			answered.Add(1)
		})
	}
	group.Wait()
	fmt.Printf("%d of %d\n", answered.Load(), polls)
}

func get(client *http.Client, url, wanted string) error {
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && (response.ProtoMajor != 2 || string(body) != wanted) {
		err = fmt.Errorf("%s: %q", response.Proto, body)
	}
	return err
}
