package dwell

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// verification is how the certificates of clients are verified. The loops only have clients prove
// that they have the key; everything else is verified here, as package tls does, once for each
// connection and before its first request.
type verification struct {
	isRequired       bool
	roots            *x509.CertPool
	verifyPeer       func([][]byte, [][]*x509.Certificate) error
	verifyConnection func(tls.ConnectionState) error
}

// verificationOf is what a configuration says of clients; nil where it asks for no certificate.
func verificationOf(config *tls.Config) *verification {
	if config == nil || config.ClientAuth == tls.NoClientCert {
		return nil
	}
	return &verification{
		isRequired:       config.ClientAuth == tls.RequireAndVerifyClientCert,
		roots:            config.ClientCAs,
		verifyPeer:       config.VerifyPeerCertificate,
		verifyConnection: config.VerifyConnection,
	}
}

// checkClientAuth returns an error for what is said of clients and would not be obeyed.
func checkClientAuth(config *tls.Config) error {
	switch config.ClientAuth {
	case tls.RequireAndVerifyClientCert, tls.VerifyClientCertIfGiven:
		return nil
	case tls.NoClientCert:
		// Package tls calls VerifyPeerCertificate for no client that is not asked.
		if config.VerifyConnection != nil {
			return unsupportedField("VerifyConnection without ClientAuth")
		}
		return nil
	}
	return unsupportedField(fmt.Sprintf("ClientAuth of %v", config.ClientAuth))
}

// client is one that is being verified, or was. What is in it is written before done is closed.
type client struct {
	handle uint64
	remote string
	// isBegun is set when its handshake is over. It is the loop's.
	isBegun    bool
	state      tls.ConnectionState
	done       chan struct{}
	isVerified bool
	err        error
}

var (
	errNotVerified   = errors.New("dwell: verification of the client has not ended")
	errNoCertificate = errors.New("tls: client didn't provide a certificate")
)

// verify decides about a client by what it has shown, and completes the state of its connection.
func (v *verification) verify(state *tls.ConnectionState, raw [][]byte) error {
	if len(raw) == 0 && v.isRequired {
		return errNoCertificate
	}
	certs := make([]*x509.Certificate, len(raw))
	for i, der := range raw {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("tls: failed to parse client certificate: %w", err)
		}
		if key, is := cert.PublicKey.(*rsa.PublicKey); is && key.N.BitLen() > rsaBitsMax {
			return fmt.Errorf("tls: client sent certificate containing RSA key larger than %d bits", rsaBitsMax)
		}
		certs[i] = cert
	}
	if len(certs) > 0 {
		chains, err := v.chains(certs)
		if err != nil {
			return err
		}
		state.PeerCertificates, state.VerifiedChains = certs, chains
	}
	// Package tls calls it also for a client that is asked and shows none.
	if v.verifyPeer != nil {
		if err := v.verifyPeer(raw, state.VerifiedChains); err != nil {
			return err
		}
	}
	if v.verifyConnection != nil {
		return v.verifyConnection(*state)
	}
	return nil
}

// chains verifies the certificate of a client by the authorities.
func (v *verification) chains(certs []*x509.Certificate) ([][]*x509.Certificate, error) {
	options := x509.VerifyOptions{
		Roots:         v.roots,
		Intermediates: x509.NewCertPool(),
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, cert := range certs[1:] {
		options.Intermediates.AddCert(cert)
	}
	chains, err := certs[0].Verify(options)
	if err != nil {
		return nil, &tls.CertificateVerificationError{UnverifiedCertificates: certs, Err: err}
	}
	switch certs[0].PublicKey.(type) {
	case *ecdsa.PublicKey, *rsa.PublicKey, ed25519.PublicKey:
		return chains, nil
	}
	return nil, fmt.Errorf("tls: client certificate contains an unsupported public key of type %T", certs[0].PublicKey)
}

// rsaBitsMax is the largest RSA key of a certificate: a larger one costs too much to verify.
const rsaBitsMax = 8192
