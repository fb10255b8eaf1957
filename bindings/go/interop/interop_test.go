// Package interop has other people's frameworks and WebSocket libraries serve over this package.
package interop

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	coder "github.com/coder/websocket"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	gorilla "github.com/gorilla/websocket"
	"github.com/labstack/echo/v4"

	"dwell"
)

func start(t *testing.T, handler http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: handler}
	done := make(chan error, 1)
	go func() { done <- dwell.Serve(l, srv) }()
	t.Cleanup(func() {
		srv.Close()
		if err := <-done; err != http.ErrServerClosed {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func ginApp() http.Handler {
	gin.SetMode(gin.ReleaseMode)
	app := gin.New()
	app.Use(gin.Recovery())
	app.POST("/hello/:name", func(c *gin.Context) {
		body, _ := io.ReadAll(c.Request.Body)
		c.String(200, "hello %s %s", c.Param("name"), body)
	})
	return app
}

func chiApp() http.Handler {
	app := chi.NewRouter()
	app.Use(middleware.Recoverer, middleware.Compress(5))
	app.Post("/hello/{name}", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		io.WriteString(w, "hello "+chi.URLParam(r, "name")+" "+string(body))
	})
	return app
}

func echoApp() http.Handler {
	app := echo.New()
	app.POST("/hello/:name", func(c echo.Context) error {
		body, _ := io.ReadAll(c.Request().Body)
		return c.String(200, "hello "+c.Param("name")+" "+string(body))
	})
	return app
}

func TestFrameworks(t *testing.T) {
	for name, app := range map[string]http.Handler{"gin": ginApp(), "chi": chiApp(), "echo": echoApp()} {
		t.Run(name, func(t *testing.T) {
			addr := start(t, app)
			for range 3 {
				resp, err := http.Post("http://"+addr+"/hello/you", "text/plain", strings.NewReader("there"))
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if string(body) != "hello you there" {
					t.Errorf("%q", body)
				}
			}
			http.DefaultClient.CloseIdleConnections()
		})
	}
}

var gorillaUpgrader gorilla.Upgrader

// echoes are servers that send every message back, each over the ordinary Hijack.
var echoes = map[string]http.HandlerFunc{
	"gorilla": func(w http.ResponseWriter, r *http.Request) {
		c, err := gorillaUpgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		for {
			kind, message, err := c.ReadMessage()
			if err != nil || c.WriteMessage(kind, message) != nil {
				return
			}
		}
	},
	"coder": func(w http.ResponseWriter, r *http.Request) {
		c, err := coder.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		// The connection outlives the request's own context.
		ctx := context.WithoutCancel(r.Context())
		for {
			kind, message, err := c.Read(ctx)
			if err != nil || c.Write(ctx, kind, message) != nil {
				return
			}
		}
	},
	"gobwas": func(w http.ResponseWriter, r *http.Request) {
		c, _, _, err := ws.UpgradeHTTP(r, w)
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for {
				message, op, err := wsutil.ReadClientData(c)
				if err != nil || wsutil.WriteServerMessage(c, op, message) != nil {
					return
				}
			}
		}()
	},
	"dwell": func(w http.ResponseWriter, r *http.Request) {
		dwell.Upgrade(w, r, &dwell.WebSocketHandler{
			OnMessage: func(s *dwell.WebSocket, isText bool, message []byte) { s.Send(isText, message) },
		})
	},
}

func TestWebSocketLibraries(t *testing.T) {
	for name, handler := range echoes {
		t.Run(name, func(t *testing.T) {
			addr := start(t, handler)
			dialer := gorilla.Dialer{EnableCompression: name == "dwell"}
			c, _, err := dialer.Dial("ws://"+addr+"/", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for _, size := range []int{0, 5, 126, 70_000, 1 << 20} {
				message := strings.Repeat("x", size)
				err := c.WriteMessage(gorilla.TextMessage, []byte(message))
				kind, got := 0, []byte(nil)
				if err == nil {
					kind, got, err = c.ReadMessage()
				}
				if err != nil && name == "coder" && size > 32<<10 {
					break // its own limit, by which it may end the connection under the write
				}
				if err != nil || kind != gorilla.TextMessage || string(got) != message {
					t.Fatalf("%d bytes: %v, %d bytes", size, err, len(got))
				}
			}
		})
	}
}
