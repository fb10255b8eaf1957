//go:build cgo && linux

package dwell

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// authority issues certificates of clients.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "our clients"}, IsCA: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key}
}

func (a authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// issue returns a certificate for this use, which is valid until then.
func (a authority) issue(t *testing.T, name string, use x509.ExtKeyUsage, until time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// whoIs answers with the name of the client, and how it was verified.
func whoIs(w http.ResponseWriter, r *http.Request) {
	if len(r.TLS.PeerCertificates) == 0 {
		fmt.Fprint(w, "nobody ", len(r.TLS.VerifiedChains))
		return
	}
	fmt.Fprint(w, r.TLS.PeerCertificates[0].Subject.CommonName, " ", len(r.TLS.VerifiedChains[0]),
		" ", r.TLS.HandshakeComplete, " ", r.TLS.DidResume)
}

// asking serves clients that are asked for a certificate. It counts the requests that came through.
func asking(t *testing.T, p pair, options Options, config *tls.Config) (*server, *atomic.Int64) {
	t.Helper()
	var served atomic.Int64
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		whoIs(w, r)
	})
	return startTLS(t, p, &Server{
		Server: &http.Server{Handler: handler, TLSConfig: config}, Options: options}), &served
}

func TestClientCertificates(t *testing.T) {
	ours, other := newAuthority(t), newAuthority(t)
	valid := time.Now().Add(time.Hour)
	alice := ours.issue(t, "alice", x509.ExtKeyUsageClientAuth, valid)
	for name, shown := range map[string]struct {
		certs    []tls.Certificate
		required string
		optional string
	}{
		"right":          {[]tls.Certificate{alice}, "alice 2 true false", "alice 2 true false"},
		"none":           {nil, "", "nobody 0"},
		"another issuer": {[]tls.Certificate{other.issue(t, "eve", x509.ExtKeyUsageClientAuth, valid)}, "", ""},
		"of a server":    {[]tls.Certificate{ours.issue(t, "srv", x509.ExtKeyUsageServerAuth, valid)}, "", ""},
		"expired": {[]tls.Certificate{
			ours.issue(t, "late", x509.ExtKeyUsageClientAuth, time.Now().Add(-time.Hour))}, "", ""},
	} {
		for _, inline := range []bool{false, true} {
			for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
				for auth, want := range map[tls.ClientAuthType]string{
					tls.RequireAndVerifyClientCert: shown.required,
					tls.VerifyClientCertIfGiven:    shown.optional,
				} {
					t.Run(fmt.Sprint(name, inline, tls.VersionName(version), auth), func(t *testing.T) {
						noLeaks(t)
						p := ecdsaPair(t)
						s, served := asking(t, p, Options{Inline: inline},
							&tls.Config{ClientAuth: auth, ClientCAs: ours.pool()})
						client := p.client(t, &tls.Config{MinVersion: version, MaxVersion: version,
							Certificates: shown.certs, ClientSessionCache: tls.NewLRUClientSessionCache(8)})
						// Twice on connections of their own: nothing may be resumed.
						for range 2 {
							resp, err := client.Get("https://" + s.addr + "/")
							if want == "" {
								if err == nil {
									t.Error("answered:", read(t, resp, err))
								}
							} else if got := read(t, resp, err); got != want {
								t.Errorf("got %q, want %q", got, want)
							}
							client.CloseIdleConnections()
						}
						if want == "" && served.Load() != 0 {
							t.Errorf("%d requests were handed over", served.Load())
						}
					})
				}
			}
		}
	}
}

func TestAClientIsVerifiedOncePerConnection(t *testing.T) {
	noLeaks(t)
	ours, p := newAuthority(t), ecdsaPair(t)
	var peers, connections atomic.Int64
	config := &tls.Config{
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.pool(),
		VerifyPeerCertificate: func(raw [][]byte, chains [][]*x509.Certificate) error {
			peers.Add(1)
			if len(raw) != 1 || len(chains[0]) != 2 {
				return errors.New("not what was shown")
			}
			return nil
		},
		VerifyConnection: func(state tls.ConnectionState) error {
			connections.Add(1)
			if state.Version != tls.VersionTLS13 || state.NegotiatedProtocol != "http/1.1" {
				return errors.New("not what was agreed on")
			}
			return nil
		},
	}
	s, served := asking(t, p, Options{}, config)
	client := p.client(t, &tls.Config{Certificates: []tls.Certificate{
		ours.issue(t, "alice", x509.ExtKeyUsageClientAuth, time.Now().Add(time.Hour))}})
	for range 3 {
		resp, err := client.Get("https://" + s.addr + "/")
		if got := read(t, resp, err); got != "alice 2 true false" {
			t.Error(got)
		}
	}
	if peers.Load() != 1 || connections.Load() != 1 || served.Load() != 3 {
		t.Error(peers.Load(), connections.Load(), served.Load())
	}
}

func TestCallbacksThatRefuseAClient(t *testing.T) {
	ours := newAuthority(t)
	for name, refuse := range map[string]func() error{
		"error":  func() error { return errors.New("not today") },
		"panic":  func() error { panic("not today") },
		"goexit": func() error { runtime.Goexit(); return nil },
	} {
		for _, isConnection := range []bool{false, true} {
			t.Run(fmt.Sprint(name, isConnection), func(t *testing.T) {
				noLeaks(t)
				p := ecdsaPair(t)
				config := &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.pool()}
				if isConnection {
					config.VerifyConnection = func(tls.ConnectionState) error { return refuse() }
				} else {
					config.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { return refuse() }
				}
				s, served := asking(t, p, Options{}, config)
				client := p.client(t, &tls.Config{Certificates: []tls.Certificate{
					ours.issue(t, "alice", x509.ExtKeyUsageClientAuth, time.Now().Add(time.Hour))}})
				if resp, err := client.Get("https://" + s.addr + "/"); err == nil {
					t.Error("answered:", read(t, resp, err))
				}
				if served.Load() != 0 {
					t.Error("a request was handed over")
				}
			})
		}
	}
}

func TestCallbacksSeeAClientWithoutACertificate(t *testing.T) {
	noLeaks(t)
	p := ecdsaPair(t)
	s, served := asking(t, p, Options{}, &tls.Config{
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: newAuthority(t).pool(),
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			if len(raw) == 0 {
				return errors.New("nobody is not admitted")
			}
			return nil
		}})
	resp, err := p.client(t, &tls.Config{}).Get("https://" + s.addr + "/")
	if err == nil || served.Load() != 0 {
		t.Error("answered:", read(t, resp, err))
	}
}

func TestAClientThatIsRefusedIsClosedWithoutARequest(t *testing.T) {
	noLeaks(t)
	ours, other, p := newAuthority(t), newAuthority(t), ecdsaPair(t)
	s, _ := asking(t, p, Options{}, &tls.Config{
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: ours.pool()})
	c := tls.Client(s.dial(), &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{
		other.issue(t, "eve", x509.ExtKeyUsageClientAuth, time.Now().Add(time.Hour))}})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	var timeout interface{ Timeout() bool }
	_, err := c.Read(make([]byte, 1))
	if err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Error(err)
	}
}

func TestWhatARequestSaysOfItsTLS(t *testing.T) {
	noLeaks(t)
	p := ecdsaPair(t)
	s := startTLS(t, p, &Server{Server: &http.Server{Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%q %q %v", r.TLS.ServerName, r.TLS.NegotiatedProtocol, r.TLS.DidResume)
		})}})
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		cache := tls.NewLRUClientSessionCache(8)
		for _, resumed := range []bool{false, true} {
			c := tls.Client(s.dial(), &tls.Config{InsecureSkipVerify: true, ServerName: "a.example",
				NextProtos: []string{"http/1.1"}, ClientSessionCache: cache, MaxVersion: version})
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
			answer, err := io.ReadAll(c)
			want := fmt.Sprintf("\r\n\r\n\"a.example\" \"http/1.1\" %v", resumed)
			if err != nil || !strings.HasSuffix(string(answer), want) {
				t.Errorf("%s: %q %v", tls.VersionName(version), answer, err)
			}
			c.Close()
		}
	}
	c := tls.Client(s.dial(), &tls.Config{InsecureSkipVerify: true})
	defer c.Close()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	answer, err := io.ReadAll(c)
	if err != nil || !strings.HasSuffix(string(answer), "\r\n\r\n\"\" \"\" false") {
		t.Errorf("%q %v", answer, err)
	}
}
