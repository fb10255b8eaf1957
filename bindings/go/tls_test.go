//go:build cgo && linux

package dwell

import (
	"bufio"
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pair is a certificate for 127.0.0.1 and its key.
type pair struct {
	certFile, keyFile string
	config            tls.Certificate
	serial            string
}

func newPair(t *testing.T, key crypto.Signer) pair {
	t.Helper()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	p := pair{
		certFile: filepath.Join(folder, "cert.pem"),
		keyFile:  filepath.Join(folder, "key.pem"),
		config:   tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		serial:   serial.String(),
	}
	p.write(t, p.certFile, "CERTIFICATE", der)
	p.write(t, p.keyFile, "PRIVATE KEY", encoded)
	return p
}

func (p pair) write(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func ecdsaPair(t *testing.T) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return newPair(t, key)
}

// startTLS serves with a server that is shut down when the test ends.
func startTLS(t *testing.T, p pair, srv *Server) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, addr: l.Addr().String(), srv: srv.Server, done: make(chan error, 1)}
	go func() { s.done <- srv.ServeTLS(l, p.certFile, p.keyFile) }()
	t.Cleanup(s.stop)
	return s
}

// client trusts a certificate.
func (p pair) client(t *testing.T, config *tls.Config) *http.Client {
	t.Helper()
	leaf, err := x509.ParseCertificate(p.config.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	config.RootCAs = x509.NewCertPool()
	config.RootCAs.AddCert(leaf)
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

func read(t *testing.T, resp *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// describe tells what a request says of its TLS.
func describe(w http.ResponseWriter, r *http.Request) {
	if r.TLS == nil {
		io.WriteString(w, "plain")
		return
	}
	fmt.Fprintf(w, "%s %s %v %s %q %s", tls.VersionName(r.TLS.Version),
		tls.CipherSuiteName(r.TLS.CipherSuite), r.TLS.HandshakeComplete, r.Proto, r.URL.Scheme,
		r.URL.Path)
}

func TestTLS(t *testing.T) {
	for _, options := range []Options{{}, {Inline: true}} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(fmt.Sprint(options.Inline, tls.VersionName(version)), func(t *testing.T) {
				noLeaks(t)
				p := ecdsaPair(t)
				s := startTLS(t, p, &Server{
					Server:  &http.Server{Handler: http.HandlerFunc(describe)},
					Options: options,
				})
				client := p.client(t, &tls.Config{MinVersion: version, MaxVersion: version})
				for range 2 {
					resp, err := client.Get("https://" + s.addr + "/path")
					got := read(t, resp, err)
					want := tls.VersionName(version) + " " + tls.CipherSuiteName(resp.TLS.CipherSuite) +
						" true HTTP/1.1 \"\" /path"
					if got != want {
						t.Errorf("got %q, want %q", got, want)
					}
				}
				client.CloseIdleConnections()
				plain := s.exchange(get11)
				if status(plain) != "400" || !strings.HasSuffix(plain, "<closed>") {
					t.Errorf("without TLS: %q", plain)
				}
			})
		}
	}
}

func TestWithoutTLSRequestsSayNothingOfIt(t *testing.T) {
	s := serve(t, describe)
	resp, err := http.Get(s.url())
	if got := read(t, resp, err); got != "plain" {
		t.Error(got)
	}
}

func TestLargeBodiesUnderTLS(t *testing.T) {
	noLeaks(t)
	p := ecdsaPair(t)
	sent := make([]byte, 5<<20)
	rand.Read(sent)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, sent, 0o600); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", fmt.Sprint(r.ContentLength))
		if _, err := io.Copy(w, r.Body); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, path)
	})
	s := startTLS(t, p, &Server{Server: &http.Server{Handler: mux}})
	client := p.client(t, &tls.Config{})
	resp, err := client.Post("https://"+s.addr+"/echo", "application/octet-stream", bytes.NewReader(sent))
	if got := read(t, resp, err); got != string(sent) {
		t.Errorf("body of %d bytes came back as another one of %d", len(sent), len(got))
	}
	resp, err = client.Get("https://" + s.addr + "/file")
	if got := read(t, resp, err); got != string(sent) {
		t.Errorf("file of %d bytes came as another one of %d", len(sent), len(got))
	}
}

func TestTakingOverUnderTLS(t *testing.T) {
	noLeaks(t)
	p := ecdsaPair(t)
	echo := &WebSocketHandler{OnMessage: func(s *WebSocket, isText bool, message []byte) {
		s.Send(isText, message)
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("/ws", func(w http.ResponseWriter, r *http.Request) { Upgrade(w, r, echo) })
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, r *http.Request) {
		_, _, err := http.NewResponseController(w).Hijack()
		fmt.Fprint(w, errors.Is(err, errors.ErrUnsupported), " ", err)
	})
	s := startTLS(t, p, &Server{Server: &http.Server{Handler: mux}})
	client := p.client(t, &tls.Config{})
	resp, err := client.Get("https://" + s.addr + "/hijack")
	if got := read(t, resp, err); got != "true dwell: Hijack under TLS is not served on event loops" {
		t.Error(got)
	}
	c := tls.Client(s.dial(), &tls.Config{InsecureSkipVerify: true})
	defer c.Close()
	io.WriteString(c, handshake)
	r := bufio.NewReader(c)
	if resp, err = http.ReadResponse(r, nil); err != nil || resp.StatusCode != 101 {
		t.Fatal(resp, err)
	}
	io.WriteString(c, "\x81\x82\x00\x00\x00\x00hi")
	frame := make([]byte, 4)
	if _, err := io.ReadFull(r, frame); err != nil || string(frame) != "\x81\x02hi" {
		t.Fatalf("%q %v", frame, err)
	}
}

func TestCertificatesOfTLSConfig(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []pair{ecdsaPair(t), newPair(t, ed), newPair(t, rsaKey)} {
		t.Run(fmt.Sprintf("%T", p.config.PrivateKey), func(t *testing.T) {
			noLeaks(t)
			config := &tls.Config{Certificates: []tls.Certificate{p.config}, MinVersion: tls.VersionTLS12,
				NextProtos: []string{"h2", "http/1.1"}}
			s := startTLS(t, pair{}, &Server{Server: &http.Server{
				Handler: http.HandlerFunc(describe), TLSConfig: config}})
			resp, err := p.client(t, &tls.Config{}).Get("https://" + s.addr + "/path")
			if got := read(t, resp, err); !strings.HasSuffix(got, " /path") {
				t.Error(got)
			}
		})
	}
}

func TestReloadTLS(t *testing.T) {
	noLeaks(t)
	p, other := ecdsaPair(t), ecdsaPair(t)
	srv := &Server{Server: &http.Server{Handler: http.HandlerFunc(describe)}}
	s := startTLS(t, p, srv)
	serial := func() string {
		c := tls.Client(s.dial(), &tls.Config{InsecureSkipVerify: true})
		defer c.Close()
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	if got := serial(); got != p.serial {
		t.Errorf("certificate %s, not %s", got, p.serial)
	}
	copyFile(t, p.certFile, other.certFile)
	if err := srv.ReloadTLS(); err == nil || !strings.Contains(err.Error(), p.keyFile) {
		t.Errorf("a key of another certificate: %v", err)
	}
	if got := serial(); got != p.serial {
		t.Errorf("certificate %s, not %s", got, p.serial)
	}
	copyFile(t, p.keyFile, other.keyFile)
	if err := srv.ReloadTLS(); err != nil {
		t.Error(err)
	}
	if got := serial(); got != other.serial {
		t.Errorf("certificate %s, not %s", got, other.serial)
	}
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	noLeaks(t)
	p, other := ecdsaPair(t), ecdsaPair(t)
	srv := &http.Server{Addr: "127.0.0.1:0", Handler: http.HandlerFunc(describe)}
	for _, files := range [][3]string{
		{p.certFile, other.keyFile, other.keyFile},
		{p.certFile, "/nowhere/key.pem", "/nowhere/key.pem"},
		{p.keyFile, p.keyFile, p.keyFile},
		{"", "", "cannot read"},
	} {
		err := (&Server{Server: srv}).ListenAndServeTLS(files[0], files[1])
		if err == nil || !strings.Contains(err.Error(), files[2]) {
			t.Errorf("%q: %v", files, err)
		}
	}
}

func TestWhatOfTLSIsNotServedIsAnErrorWithItsName(t *testing.T) {
	noLeaks(t)
	p := ecdsaPair(t)
	signer := p.config
	signer.PrivateKey = struct{ crypto.Signer }{p.config.PrivateKey.(crypto.Signer)}
	stapled := p.config
	stapled.OCSPStaple = []byte("staple")
	for want, config := range map[string]*tls.Config{
		"TLSConfig.ClientAuth of RequireAnyClientCert": {ClientAuth: tls.RequireAnyClientCert},
		"TLSConfig.ClientAuth of RequestClientCert":    {ClientAuth: tls.RequestClientCert},
		"TLSConfig.VerifyConnection without ClientAuth": {
			VerifyConnection: func(tls.ConnectionState) error { return nil }},
		"TLSConfig.CipherSuites":                 {CipherSuites: []uint16{tls.TLS_AES_128_GCM_SHA256}},
		"TLSConfig.KeyLogWriter":                 {KeyLogWriter: io.Discard},
		"TLSConfig.MinVersion of TLS 1.3":        {MinVersion: tls.VersionTLS13},
		"TLSConfig.MinVersion of TLS 1.0":        {MinVersion: tls.VersionTLS10},
		"TLSConfig.MaxVersion of TLS 1.2":        {MaxVersion: tls.VersionTLS12},
		"TLSConfig.NextProtos with acme-tls/1":   {NextProtos: []string{"h2", "acme-tls/1"}},
		"TLSConfig.SessionTicketsDisabled":       {SessionTicketsDisabled: true},
		"TLSConfig.Certificates with OCSPStaple": {Certificates: []tls.Certificate{stapled}},
		"TLSConfig.Certificates with a key of type struct { crypto.Signer }": {
			Certificates: []tls.Certificate{signer}},
		"TLSConfig.GetCertificate": {
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		err = ServeTLS(l, &http.Server{TLSConfig: config}, "", "")
		var unsupported *UnsupportedError
		if !errors.As(err, &unsupported) || unsupported.What != want {
			t.Errorf("%v, not %q", err, want)
		}
		l.Close()
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	srv := &Server{Server: &http.Server{Addr: "127.0.0.1:0", Protocols: protocols}}
	err := srv.ListenAndServeTLS(p.certFile, p.keyFile)
	var unsupported *UnsupportedError
	if !errors.As(err, &unsupported) || unsupported.What != "Protocols without HTTP/1" {
		t.Error(err)
	}
}

func TestPlainAndTLSOfOneServer(t *testing.T) {
	noLeaks(t)
	p := ecdsaPair(t)
	srv := &Server{Server: &http.Server{Handler: http.HandlerFunc(describe)}}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(plain) }()
	s := startTLS(t, p, srv)
	resp, err := p.client(t, &tls.Config{}).Get("https://" + s.addr + "/path")
	if got := read(t, resp, err); !strings.HasSuffix(got, " /path") {
		t.Error(got)
	}
	resp, err = http.Get("http://" + plain.Addr().String())
	if got := read(t, resp, err); got != "plain" {
		t.Error(got)
	}
	srv.Shutdown(t.Context())
	if err := <-done; err != http.ErrServerClosed {
		t.Error(err)
	}
}
