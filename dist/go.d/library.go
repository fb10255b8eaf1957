//go:build cgo && linux && amd64

// Package prebuilt links the library of package dwell, which is built for LIBC.
package prebuilt

// #cgo LDFLAGS: ${SRCDIR}/libdwell.a -lm -lpthread -ldl
import "C"
