//go:build cgo && linux

package dwell

/*
#cgo CFLAGS: -I${SRCDIR}/../capi/include
#cgo LDFLAGS: -L${SRCDIR}/lib -ldwell -lm -lpthread -ldl
#cgo noescape dwell_engine_turn
#cgo nocallback dwell_engine_turn
#cgo noescape dwell_engine_submit
#cgo nocallback dwell_engine_submit
#include <stdlib.h>
#include "dwell.h"
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"
)

// engine is one engine of the C library. It is for one goroutine at a time.
type engine struct {
	ptr *C.dwell_engine
	// batch is in C's memory, so that what is passed to C has no Go pointers behind it.
	batch *C.dwell_batch
}

// event is one thing that happened, as the library lays it out.
type event = C.dwell_event

const (
	kindRequest          = C.DWELL_REQUEST
	kindBody             = C.DWELL_BODY
	kindBodyEnd          = C.DWELL_BODY_END
	kindWritable         = C.DWELL_WRITABLE
	kindPeerClosed       = C.DWELL_PEER_CLOSED
	kindGone             = C.DWELL_GONE
	kindDetached         = C.DWELL_DETACHED
	kindOpened           = C.DWELL_OPENED
	kindClosed           = C.DWELL_CLOSED
	kindWebSocketOpened  = C.DWELL_WEBSOCKET_OPENED
	kindWebSocketMessage = C.DWELL_WEBSOCKET_MESSAGE
	kindWebSocketClosed  = C.DWELL_WEBSOCKET_CLOSED
	kindStreamData       = C.DWELL_STREAM_DATA
	kindStreamPeerClosed = C.DWELL_STREAM_PEER_CLOSED
	kindStreamClosed     = C.DWELL_STREAM_CLOSED
	kindUpgradeRefused   = C.DWELL_UPGRADE_REFUSED
	kindSecured          = C.DWELL_SECURED
)

const (
	flagBodyFollows     = C.DWELL_BODY_FOLLOWS
	flagHTTP10          = C.DWELL_HTTP10
	flagKeepAlive       = C.DWELL_KEEP_ALIVE
	flagExpectsContinue = C.DWELL_EXPECTS_CONTINUE
	flagChunked         = C.DWELL_CHUNKED
	flagSecure          = C.DWELL_SECURE
	flagResumed         = C.DWELL_RESUMED
	flagAgreed          = C.DWELL_AGREED
	flagNamed           = C.DWELL_NAMED
	flagHTTP2           = C.DWELL_HTTP2
)

const (
	writeFinish = C.DWELL_FINISH
	writeClose  = C.DWELL_CLOSE
	writeNotify = C.DWELL_NOTIFY
)

const (
	upgradeAnyOrigin = C.DWELL_ANY_ORIGIN
	upgradePlain     = C.DWELL_PLAIN
)

// The operations of orders.
const (
	opWrite         = 1
	opAnswer        = 2
	opBegin         = 3
	opInformational = 4
	opGrant         = 5
	opAbort         = 6
	opClose         = 7
	opDetach        = 8
	opUpgrade       = 9
	opSend          = 10
	opPing          = 11
	opPause         = 12
	opResume        = 13
	opDone          = 14
)

// limits are what an engine is made with.
type limits struct {
	headBytes, connections, bodyCredit, outputBytes int
	firstMillis, headerMillis, idleMillis           uint64
	bodyMillis, writeMillis                         uint64
	reportsConnections, reportsHandshakes           bool
	h2c, http2, webSocketStreams                    bool
}

func newEngine(l limits) (*engine, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	options := C.dwell_options{size: C.size_t(unsafe.Sizeof(C.dwell_options{}))}
	if status := C.dwell_options_default(&options); status != C.DWELL_OK {
		return nil, statusError(status)
	}
	options.head_bytes_max = C.uint64_t(l.headBytes)
	options.target_bytes_max = C.uint64_t(l.headBytes)
	options.field_count_max = 128
	options.connections_max = C.uint64_t(l.connections)
	options.requests_per_connection_max = C.uint64_t(1<<32 - 1)
	options.body_credit = C.uint64_t(l.bodyCredit)
	options.output_bytes_max = C.uint64_t(l.outputBytes)
	options.header_timeout_ms = C.uint64_t(l.headerMillis)
	options.first_request_timeout_ms = C.uint64_t(l.firstMillis)
	options.body_timeout_ms = C.uint64_t(l.bodyMillis)
	options.idle_timeout_ms = C.uint64_t(l.idleMillis)
	options.write_timeout_ms = C.uint64_t(l.writeMillis)
	options.canonical_names = true
	options.reports_connections = C.bool(l.reportsConnections)
	options.reports_handshakes = C.bool(l.reportsHandshakes)
	options.h2c = C.bool(l.h2c)
	options.http2 = C.bool(l.http2)
	options.websocket_streams = C.bool(l.webSocketStreams)
	options.counts_work = true
	options.half_close = true
	options.host_deadlines = true
	e := &engine{}
	if status := C.dwell_engine_new(&options, &e.ptr); status != C.DWELL_OK {
		return nil, statusError(status)
	}
	e.batch = (*C.dwell_batch)(C.calloc(1, C.size_t(unsafe.Sizeof(C.dwell_batch{}))))
	return e, nil
}

// forever is what the library takes for no timeout, in milliseconds.
const forever = 100 * 24 * 3600 * 1000

// statusError is the error that a status stands for; the goroutine must be locked to its thread.
func statusError(status uint32) error {
	text := C.GoString(C.dwell_status_text(C.int(status)))
	if status == C.DWELL_SYSTEM || status == C.DWELL_CERTIFICATE {
		var message [256]C.char
		C.dwell_last_error(&message[0], C.size_t(len(message)-1))
		return fmt.Errorf("dwell: %s: %s", text, C.GoString(&message[0]))
	}
	return fmt.Errorf("dwell: %s", text)
}

func (e *engine) free() {
	C.dwell_engine_free(e.ptr)
	C.free(unsafe.Pointer(e.batch))
	e.ptr, e.batch = nil, nil
}

func (e *engine) fileno() int {
	return int(C.dwell_engine_fileno(e.ptr))
}

// turn carries out orders and tells how many things have happened. After an error the engine is of
// no use any more.
func (e *engine) turn(commands []byte) (int, error) {
	start := (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(commands)))
	status := C.dwell_engine_turn(e.ptr, start, C.size_t(len(commands)), 0, e.batch)
	if status != C.DWELL_OK {
		text := C.GoString(C.dwell_status_text(C.int(status)))
		return 0, fmt.Errorf("dwell: event loop has failed: %s", text)
	}
	return int(e.batch.count), nil
}

// submit carries out orders and returns for how many milliseconds the next turn may wait; -1 for
// ever.
func (e *engine) submit(commands []byte) int64 {
	start := (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(commands)))
	var wait C.int64_t
	C.dwell_engine_submit(e.ptr, start, C.size_t(len(commands)), nil, &wait)
	return int64(wait)
}

func (e *engine) waitMillis() int64 {
	return int64(e.batch.wait_ms)
}

// event returns what happened as number i of the last turn.
func (e *engine) event(i int) *event {
	return &unsafe.Slice(e.batch.events, e.batch.count)[i]
}

// bytes returns the bytes of an event, which live until the next turn.
func (e *engine) bytes(ev *event) []byte {
	if ev.length == 0 {
		return nil
	}
	data := unsafe.Slice((*byte)(unsafe.Pointer(e.batch.data)), e.batch.data_length)
	return data[ev.start : ev.start+ev.length]
}

func (e *engine) adopt(fd int) (uint64, bool) {
	var name C.uint64_t
	status := C.dwell_engine_adopt(e.ptr, C.int(fd), &name)
	return uint64(name), status == C.DWELL_OK
}

func (e *engine) adoptStream(fd int, input []byte) (uint64, bool) {
	var name C.uint64_t
	start := (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(input)))
	status := C.dwell_engine_adopt_stream(e.ptr, C.int(fd), start, C.size_t(len(input)), &name)
	return uint64(name), status == C.DWELL_OK
}

func (e *engine) writeFile(handle uint64, flags uint32, fd int, offset, length int64) bool {
	status := C.dwell_engine_write_file(e.ptr, C.uint64_t(handle), C.uint32_t(flags), C.int(fd),
		C.uint64_t(offset), C.uint64_t(length))
	return status == C.DWELL_OK
}

func (e *engine) takeDescriptor(handle uint64) int {
	return int(C.dwell_engine_take_descriptor(e.ptr, C.uint64_t(handle)))
}

func (e *engine) localAddress(handle uint64) string {
	var text [128]C.char
	status := C.dwell_engine_local_address(e.ptr, C.uint64_t(handle), &text[0],
		C.size_t(len(text)-1))
	if status != C.DWELL_OK {
		return ""
	}
	return C.GoString(&text[0])
}

func (e *engine) drain()    { C.dwell_engine_drain(e.ptr) }
func (e *engine) closeAll() { C.dwell_engine_close_all(e.ptr) }

func (e *engine) statistics() C.dwell_statistics {
	var s C.dwell_statistics
	C.dwell_engine_statistics(e.ptr, &s)
	return s
}

// order is one order but for its bytes.
type order struct {
	op, status uint16
	flags      uint32
	handle     uint64
	argument   uint64
}

// appendOrder writes an order behind others.
func appendOrder(to []byte, o order, fields string, parts ...[]byte) []byte {
	length := len(fields)
	for _, part := range parts {
		length += len(part)
	}
	to = binary.NativeEndian.AppendUint16(to, o.op)
	to = binary.NativeEndian.AppendUint16(to, o.status)
	to = binary.NativeEndian.AppendUint32(to, o.flags)
	to = binary.NativeEndian.AppendUint64(to, o.handle)
	to = binary.NativeEndian.AppendUint64(to, o.argument)
	to = binary.NativeEndian.AppendUint32(to, uint32(len(fields)))
	to = binary.NativeEndian.AppendUint32(to, uint32(length))
	to = append(to, fields...)
	for _, part := range parts {
		to = append(to, part...)
	}
	return append(to, padding[:-length&7]...)
}

var padding [8]byte
