package main

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net/http"

	"dwell"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/gorilla/websocket"
)

// style is a way to have a WebSocket that sends everything back.
type style struct {
	path, title, text string
	handler           http.HandlerFunc
	// std is the handler that net/http runs.
	std http.HandlerFunc
}

var styles = []style{
	{"/ws", "message by message", "is echoed by callbacks of <code>dwell.Upgrade</code>: no goroutine while idle.",
		messages, goroutine},
	{"/ws-frames", "frame by frame", "speaks the protocol itself, by callbacks of <code>dwell.SetReadHandler</code>.",
		frames, goroutine},
	{"/ws-goroutine", "a goroutine a connection", "is the classic shape: Hijack, and gobwas/ws on a goroutine.",
		goroutine, goroutine},
	{"/ws-gorilla", "inside its handler", "is an ordinary net/http handler of gorilla/websocket, unchanged.",
		inHandler, inHandler},
}

// messages is driven by events, a message at a time: no goroutine while nothing comes. Where
// net/http serves it is that of goroutine.
func messages(w http.ResponseWriter, r *http.Request) {
	_, err := dwell.Upgrade(w, r, echo)
	if errors.Is(err, errors.ErrUnsupported) {
		goroutine(w, r)
	} else if err != nil {
		log.Print(err)
	}
}

var echo = &dwell.WebSocketHandler{
	OnMessage: func(s *dwell.WebSocket, isText bool, message []byte) { s.Send(isText, message) },
}

// frames is driven by events too, but speaks the protocol itself, a frame at a time, on a
// connection that it has taken over from HTTP.
func frames(w http.ResponseWriter, r *http.Request) {
	conn, buffered, _, err := ws.UpgradeHTTP(r, w)
	if err != nil {
		log.Print(err)
		return
	}
	_, err = dwell.SetReadHandler(conn, buffered.Reader, &dwell.StreamHandler{OnData: take})
	if err != nil {
		log.Print(err)
		conn.Close()
	}
}

// frameBytesMax is the longest frame that is waited for.
const frameBytesMax = 1 << 20

// take answers the whole frames of what has come, and keeps the rest in the stream's Data.
func take(s *dwell.Stream, data []byte) {
	input, _ := s.Data.([]byte)
	input = append(input, data...)
	for {
		from := bytes.NewReader(input)
		header, err := ws.ReadHeader(from)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		}
		if err != nil || isMalformed(header) {
			end(s, ws.StatusProtocolError)
			return
		}
		if header.Length > frameBytesMax {
			end(s, ws.StatusMessageTooBig)
			return
		}
		if int64(from.Len()) < header.Length {
			break
		}
		rest := input[len(input)-from.Len():]
		payload := rest[:header.Length]
		input = rest[header.Length:]
		ws.Cipher(payload, header.Mask, 0)
		if !answer(s, header, payload) {
			return
		}
	}
	s.Data = append([]byte(nil), input...)
}

func isMalformed(header ws.Header) bool {
	isLong := header.Length > ws.MaxControlFramePayloadSize
	isBadControl := header.OpCode.IsControl() && (!header.Fin || isLong)
	return !header.Masked || header.Rsv != 0 || header.OpCode.IsReserved() || isBadControl
}

// answer answers a frame; false for the last one.
func answer(s *dwell.Stream, header ws.Header, payload []byte) bool {
	frame := ws.NewFrame(header.OpCode, header.Fin, payload)
	switch header.OpCode {
	case ws.OpPong:
		return true
	case ws.OpPing:
		frame = ws.NewPongFrame(payload)
	}
	send(s, frame)
	if header.OpCode == ws.OpClose {
		s.Close()
		return false
	}
	return true
}

func send(s *dwell.Stream, frame ws.Frame) {
	// Neither fails here: the sizes fit, and who has left needs no answer.
	encoded, _ := ws.CompileFrame(frame)
	s.Write(encoded)
}

func end(s *dwell.Stream, code ws.StatusCode) {
	send(s, ws.NewCloseFrame(ws.NewCloseFrameBody(code, "")))
	s.Close()
}

// goroutine is the classic shape: the connection leaves HTTP for a goroutine of its own.
func goroutine(w http.ResponseWriter, r *http.Request) {
	conn, _, _, err := ws.UpgradeHTTP(r, w)
	if err != nil {
		log.Print(err)
		return
	}
	go func() {
		defer conn.Close()
		for {
			message, opcode, err := wsutil.ReadClientData(conn)
			if err != nil || wsutil.WriteServerMessage(conn, opcode, message) != nil {
				return
			}
		}
	}()
}

var upgrader websocket.Upgrader

// inHandler is what most programs on net/http do, unchanged: the handler returns when the
// connection ends.
func inHandler(w http.ResponseWriter, r *http.Request) {
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	for {
		kind, message, err := conn.ReadMessage()
		if err != nil || conn.WriteMessage(kind, message) != nil {
			return
		}
	}
}
