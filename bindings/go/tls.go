package dwell

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"slices"
)

// ServeTLS serves the clients of l under TLS with the handler and by the settings of srv, as
// [Server.ServeTLS].
func ServeTLS(l net.Listener, srv *http.Server, certFile, keyFile string) error {
	return (&Server{Server: srv}).ServeTLS(l, certFile, keyFile)
}

// ListenAndServeTLS listens on the TCP address addr and serves under TLS with handler, or
// [http.DefaultServeMux] if that is nil, as [Server.ServeTLS].
func ListenAndServeTLS(addr, certFile, keyFile string, handler http.Handler) error {
	srv := &Server{Server: &http.Server{Addr: addr, Handler: handler}}
	return srv.ListenAndServeTLS(certFile, keyFile)
}

// ListenAndServeTLS listens on the TCP address s.Addr and serves, as [Server.ServeTLS].
func (s *Server) ListenAndServeTLS(certFile, keyFile string) error {
	addr := s.Addr
	if addr == "" {
		addr = ":https"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer l.Close()
	return s.ServeTLS(l, certFile, keyFile)
}

// certificate is a certificate and its key: in files, or in PEM.
type certificate struct {
	certFile, keyFile string
	cert, key         []byte
}

// certificates returns what a server offers: the files, or without them what its TLSConfig has. A
// field of the configuration that is not obeyed is an [*UnsupportedError] with its name.
func (s *Server) certificates(certFile, keyFile string) ([]certificate, error) {
	// Its error is of no interest: net/http changes TLSConfig and TLSNextProto once for all calls,
	// and this waits for that.
	s.Server.ServeTLS(nil, noFile, noFile)
	if err := checkProtocols(s.Server); err != nil {
		return nil, err
	}
	config := s.TLSConfig
	if config == nil {
		config = &tls.Config{}
	}
	if err := checkConfig(config); err != nil {
		return nil, err
	}
	if len(config.Certificates) == 0 || certFile != "" || keyFile != "" {
		return []certificate{{certFile: certFile, keyFile: keyFile}}, nil
	}
	var all []certificate
	for i := range config.Certificates {
		each, err := encode(&config.Certificates[i])
		if err != nil {
			return nil, err
		}
		all = append(all, each)
	}
	return all, nil
}

// noFile is the path of no file.
const noFile = "/dev/null/none"

// checkProtocols returns an error if a program wants other protocols than HTTP/1.
func checkProtocols(srv *http.Server) error {
	if p := srv.Protocols; p != nil && !p.HTTP1() {
		return &UnsupportedError{"Protocols without HTTP/1"}
	}
	for protocol := range srv.TLSNextProto {
		// Both are set by net/http itself.
		if protocol != "h2" && protocol != "unencrypted_http2" {
			return &UnsupportedError{"TLSNextProto with " + protocol}
		}
	}
	return nil
}

// Fields of a configuration that net/http does not read for servers, or that are looked at.
var obeyed = map[string]bool{
	"Certificates":          true,
	"ClientAuth":            true,
	"ClientCAs":             true,
	"VerifyConnection":      true,
	"VerifyPeerCertificate": true,
	"NextProtos":            true,
	"MinVersion":            true,
	"MaxVersion":            true,
	// These are for clients, or say nothing any more.
	"ClientSessionCache":                  true,
	"EncryptedClientHelloConfigList":      true,
	"EncryptedClientHelloRejectionVerify": true,
	"GetClientCertificate":                true,
	"InsecureSkipVerify":                  true,
	"PreferServerCipherSuites":            true,
	"Renegotiation":                       true,
	"RootCAs":                             true,
	"ServerName":                          true,
}

// checkConfig returns an error for the first field that is set and would not be obeyed.
func checkConfig(config *tls.Config) error {
	value := reflect.ValueOf(config).Elem()
	for i := range value.NumField() {
		field := value.Type().Field(i)
		if field.IsExported() && !obeyed[field.Name] && !value.Field(i).IsZero() {
			return unsupportedField(field.Name)
		}
	}
	if err := checkClientAuth(config); err != nil {
		return err
	}
	// TLS 1.3 and 1.2 are spoken, whatever is said.
	if config.MinVersion != 0 && config.MinVersion != tls.VersionTLS12 {
		return unsupportedField(fmt.Sprintf("MinVersion of %s", tls.VersionName(config.MinVersion)))
	}
	if config.MaxVersion != 0 && config.MaxVersion != tls.VersionTLS13 {
		return unsupportedField(fmt.Sprintf("MaxVersion of %s", tls.VersionName(config.MaxVersion)))
	}
	// A client that may choose HTTP/2 is not offered it.
	other := func(p string) bool { return p != "http/1.1" && p != "h2" }
	if i := slices.IndexFunc(config.NextProtos, other); i >= 0 {
		return unsupportedField("NextProtos with " + config.NextProtos[i])
	}
	return nil
}

func unsupportedField(name string) error { return &UnsupportedError{"TLSConfig." + name} }

// encode writes a certificate as PEM.
func encode(c *tls.Certificate) (certificate, error) {
	switch {
	case len(c.OCSPStaple) > 0:
		return certificate{}, unsupportedField("Certificates with OCSPStaple")
	case len(c.SignedCertificateTimestamps) > 0:
		return certificate{}, unsupportedField("Certificates with SignedCertificateTimestamps")
	case len(c.SupportedSignatureAlgorithms) > 0:
		return certificate{}, unsupportedField("Certificates with SupportedSignatureAlgorithms")
	}
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		// One that is elsewhere, and only signs.
		return certificate{}, unsupportedField(fmt.Sprintf("Certificates with a key of type %T", c.PrivateKey))
	}
	var encoded certificate
	for _, der := range c.Certificate {
		block := pem.Block{Type: "CERTIFICATE", Bytes: der}
		encoded.cert = append(encoded.cert, pem.EncodeToMemory(&block)...)
	}
	encoded.key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	return encoded, nil
}
