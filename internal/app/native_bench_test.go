package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"understudy/auth"
	"understudy/internal/config"
)

// BenchmarkNative is what requests cost in a server without authentication, with API keys, and with tokens: -cpuprofile and -benchmem say of what the difference
// consists. The client costs next to nothing: it writes the same bytes each time.
func BenchmarkNative(b *testing.B) {
	secret := []byte(strings.Repeat("s", 32))
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"iss": "bench", "sub": "ada", "exp": time.Now().Add(time.Hour).Unix()}).SignedString(secret)
	require.NoError(b, err)
	for _, scenario := range []struct{ name, method, path, body string }{
		{"get", "GET", "/threads/{thread}", ""},
		{"stateless", "POST", "/runs/wait", `{"assistant_id":"talk"}`},
		{"thread", "POST", "/threads/{thread}/runs/wait", `{"assistant_id":"talk"}`},
	} {
		for _, with := range []string{"open", "key", "token"} {
			b.Run(scenario.name+"/"+with, func(b *testing.B) {
				settings, _, err := config.Load(config.Source{
					Mode: config.Serve, Flags: map[string]string{"port": "0", "data": b.TempDir(), "synchronous": "normal"}, Lookup: func(string) (string, bool) { return "", false },
				})
				require.NoError(b, err)
				settings.Auth.Keys = with == "key"
				if with == "token" {
					settings.Auth.JWT = &config.JWT{Issuer: "bench", Secret: secret}
				}
				s, err := New(b.Context(), Config{Settings: settings, Log: slog.New(slog.DiscardHandler)})
				require.NoError(b, err)
				require.NoError(b, s.Register("talk", "", repeats{}))
				ctx, stop := context.WithCancel(b.Context())
				ended := make(chan error, 1)
				go func() { ended <- s.Run(ctx) }()
				header := ""
				switch with {
				case "key":
					k, text := auth.New("bench", "ada", []string{auth.Write}, time.Now(), time.Time{})
					require.NoError(b, s.rows.InsertKey(b.Context(), k))
					header = "X-Api-Key: " + text + "\r\n"
				case "token":
					header = "Authorization: Bearer " + token + "\r\n"
				}
				conn, err := net.Dial("tcp", s.Addr().String())
				require.NoError(b, err)
				c := plainClient{conn, bufio.NewReader(conn)}
				request := func(method, path, body string) string {
					return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + header + "Content-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
				}
				made, err := c.send(request("POST", "/threads", "{}"))
				require.NoError(b, err)
				_, id, _ := strings.Cut(string(made), `"thread_id":"`)
				text := request(scenario.method, strings.ReplaceAll(scenario.path, "{thread}", id[:36]), scenario.body)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := c.send(text); err != nil {
						b.Fatal(err)
					}
				}
				require.NoError(b, conn.Close())
				stop()
				require.NoError(b, <-ended)
			})
		}
	}
}

// plainClient sends requests over one connection and reads answers with a length.
type plainClient struct {
	conn net.Conn
	in   *bufio.Reader
}

func (c plainClient) send(request string) ([]byte, error) {
	if _, err := io.WriteString(c.conn, request); err != nil {
		return nil, err
	}
	status, length := "", -1
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		text := strings.TrimSpace(string(line))
		if text == "" {
			break
		}
		if status == "" {
			status = text
		}
		if name, value, ok := strings.Cut(text, ": "); ok && strings.EqualFold(name, "content-length") {
			if length, err = strconv.Atoi(value); err != nil {
				return nil, err
			}
		}
	}
	if length < 0 {
		return nil, errors.New("an answer without a length")
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(c.in, body); err != nil {
		return nil, err
	}
	if !strings.Contains(status, " 200 ") {
		return nil, fmt.Errorf("%s: %s", status, body)
	}
	return body, nil
}
