//go:build cgo && linux

package dwell

/*
#include <stdlib.h>
#include "dwell.h"
*/
import "C"

import (
	"crypto/tls"
	"errors"
	"net"
	"runtime"
	"sync"
	"unsafe"
)

// identity is what the clients of a listener are shown under TLS. All goroutines may use it at once.
type identity struct {
	ptr *C.dwell_tls
	// verification is how clients are verified; nil where they are not asked for a certificate.
	verification *verification
}

// identities are those that a server serves with.
type identities struct {
	mu  sync.Mutex
	all map[*identity]struct{}
}

// ServeTLS serves the clients of l under TLS 1.3 and 1.2, as [Serve]. certFile and keyFile are PEM
// files; where both are empty, the Certificates of s.TLSConfig are used. An [*UnsupportedError]
// names a field of s.TLSConfig that is set and not supported.
func (s *Server) ServeTLS(l net.Listener, certFile, keyFile string) error {
	certificates, err := s.certificates(certFile, keyFile)
	if err != nil {
		return err
	}
	verification := verificationOf(s.TLSConfig)
	if s.H2 && verification != nil {
		return &UnsupportedError{"HTTP/2 with TLSConfig.ClientAuth"}
	}
	id, err := newIdentity(certificates, verification)
	if err != nil {
		return err
	}
	s.identities.mu.Lock()
	if s.identities.all == nil {
		s.identities.all = map[*identity]struct{}{}
	}
	s.identities.all[id] = struct{}{}
	s.identities.mu.Unlock()
	defer func() {
		s.identities.mu.Lock()
		delete(s.identities.all, id)
		s.identities.mu.Unlock()
	}()
	return s.serve(l, id)
}

// ReloadTLS reads the certificate files of every ServeTLS of s again. Clients that connect from now
// on get the new certificates; connections go on. A ServeTLS whose files are an error keeps its
// certificates.
func (s *Server) ReloadTLS() error {
	s.identities.mu.Lock()
	defer s.identities.mu.Unlock()
	var err error
	for id := range s.identities.all {
		err = errors.Join(err, id.reload())
	}
	return err
}

func newIdentity(certificates []certificate, v *verification) (*identity, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var pinner runtime.Pinner
	defer pinner.Unpin()
	var texts []*C.char
	defer func() {
		for _, text := range texts {
			C.free(unsafe.Pointer(text))
		}
	}()
	text := func(s string) *C.char {
		texts = append(texts, C.CString(s))
		return texts[len(texts)-1]
	}
	span := func(b []byte) C.dwell_span {
		start := unsafe.SliceData(b)
		pinner.Pin(start)
		return C.dwell_span{start: (*C.uint8_t)(unsafe.Pointer(start)), length: C.size_t(len(b))}
	}
	all := make([]C.dwell_certificate, len(certificates))
	for i, c := range certificates {
		if c.cert == nil {
			all[i] = C.dwell_certificate{certificate_file: text(c.certFile), key_file: text(c.keyFile)}
		} else {
			all[i] = C.dwell_certificate{certificate: span(c.cert), key: span(c.key)}
		}
	}
	options := C.dwell_tls_options{size: C.size_t(unsafe.Sizeof(C.dwell_tls_options{}))}
	if status := C.dwell_tls_options_default(&options); status != C.DWELL_OK {
		return nil, statusError(status)
	}
	pinner.Pin(unsafe.SliceData(all))
	options.certificates = unsafe.SliceData(all)
	options.certificate_count = C.size_t(len(all))
	options.keeps_server_names = true
	if v != nil {
		options.host_verifies = true
		options.client_certificates = C.DWELL_CLIENTS_ASKED
		if v.isRequired {
			options.client_certificates = C.DWELL_CLIENTS_REQUIRED
		}
	}
	id := &identity{verification: v}
	if status := C.dwell_tls_new(&options, &id.ptr); status != C.DWELL_OK {
		return nil, statusError(status)
	}
	runtime.AddCleanup(id, func(ptr *C.dwell_tls) { C.dwell_tls_free(ptr) }, id.ptr)
	return id, nil
}

func (id *identity) reload() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer runtime.KeepAlive(id)
	if status := C.dwell_tls_reload(id.ptr); status != C.DWELL_OK {
		return statusError(status)
	}
	return nil
}

func (e *engine) adoptTLS(fd int, id *identity) (uint64, bool) {
	var name C.uint64_t
	status := C.dwell_engine_adopt_tls(e.ptr, C.int(fd), id.ptr, &name)
	runtime.KeepAlive(id)
	return uint64(name), status == C.DWELL_OK
}

// peerCertificates copies the certificates that the client of a connection has shown, and the facts
// of its handshake; false where it is gone.
func (e *engine) peerCertificates(handle uint64) (state tls.ConnectionState, raw [][]byte, ok bool) {
	facts := C.dwell_tls_facts{size: C.size_t(unsafe.Sizeof(C.dwell_tls_facts{}))}
	if C.dwell_engine_tls_facts(e.ptr, C.uint64_t(handle), &facts) != C.DWELL_OK {
		return state, nil, false
	}
	state.Version = uint16(facts.version)
	state.CipherSuite = uint16(facts.cipher_suite)
	state.DidResume = bool(facts.is_resumed)
	state.ServerName = C.GoString(&facts.server_name[0])
	if facts.has_protocol {
		state.NegotiatedProtocol = "http/1.1"
	}
	for place := range facts.certificate_count {
		var der C.dwell_span
		if C.dwell_engine_peer_certificate(e.ptr, C.uint64_t(handle), place, &der) != C.DWELL_OK {
			return state, nil, false
		}
		raw = append(raw, C.GoBytes(unsafe.Pointer(der.start), C.int(der.length)))
	}
	return state, raw, true
}

// connectionState is what is known of the TLS that a request came under; nil without TLS.
func (e *exchange) connectionState() *tls.ConnectionState {
	if e.flags&flagSecure == 0 {
		return nil
	}
	if e.client != nil {
		// All requests of a connection share it, as in net/http.
		return &e.client.state
	}
	state := &tls.ConnectionState{
		Version:           tls.VersionTLS12,
		HandshakeComplete: true,
		CipherSuite:       uint16(e.flags >> 16),
		DidResume:         e.flags&flagResumed != 0,
	}
	if state.CipherSuite>>8 == 0x13 {
		state.Version = tls.VersionTLS13
	}
	if e.isFramed() {
		state.NegotiatedProtocol = "h2"
	} else if e.flags&flagAgreed != 0 {
		state.NegotiatedProtocol = "http/1.1"
	}
	if e.flags&flagNamed != 0 {
		state.ServerName = e.span(fixedWords + int(e.word(8))*fieldWords)
	}
	return state
}
