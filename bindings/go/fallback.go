//go:build !cgo || !linux

package dwell

import "net"

// Serve serves the clients of l, as the function [Serve] does.
func (s *Server) Serve(l net.Listener) error {
	s.fallBack("event loops need cgo and Linux")
	return s.Server.Serve(l)
}
