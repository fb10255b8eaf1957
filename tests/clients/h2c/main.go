// A client of net/http that speaks HTTP/2: many requests at once. The URL is one of http, by prior
// knowledge, or of https, whose certificate is not checked.
package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const requests = 50

func main() {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	protocols.SetHTTP2(true)
	transport := &http.Transport{
		Protocols:       protocols,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	client := &http.Client{Transport: transport, Timeout: 60 * time.Second}
	var answered atomic.Int32
	var group sync.WaitGroup
	for range requests {
		group.Go(func() {
			if err := get(client, os.Args[1], os.Args[2]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return
			}
			answered.Add(1)
		})
	}
	group.Wait()
	fmt.Printf("%d of %d\n", answered.Load(), requests)
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
