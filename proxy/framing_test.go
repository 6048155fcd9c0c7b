package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/framingtest"
)

// The proxy refuses what the server refuses, and its upstream sees nothing of it.
func TestFraming(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
	})
	statuses := func(text string) (list []int) {
		answers := bufio.NewReader(strings.NewReader(w.raw(text)))
		for {
			res, err := http.ReadResponse(answers, nil)
			if err != nil {
				return list
			}
			_, _ = io.Copy(io.Discard, res.Body)
			list = append(list, res.StatusCode)
		}
	}
	for name, text := range framingtest.Refused() {
		require.Equal(t, []int{400}, statuses(text), name)
	}
	require.Zero(t, asked.Load())
	for name, text := range framingtest.Taken() {
		require.Equal(t, []int{200}, statuses(text), name)
	}
}

// What an upstream says of the end of its answer passes in one form, or not at all.
func TestFramingOfAnswers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer string
		status int
	}{
		"a length":             {"Content-Length: 2\r\n\r\n{}", 200},
		"two equal lengths":    {"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 200},
		"two lengths":          {"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x", 502},
		"length and chunks":    {"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 200},
		"an unknown coding":    {"Transfer-Encoding: xchunked\r\n\r\n{}", 502},
		"a length of no digit": {"Content-Length: +2\r\n\r\n{}", 502},
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
						fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n%s", tt.answer)
					}
				}()
			}
		}()
		w := front(t, "http://"+ln.Addr().String())
		res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(w.raw("GET /info HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))), nil)
		require.NoError(t, err, name)
		require.Equal(t, tt.status, res.StatusCode, name)
		if tt.status == 200 {
			body, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.Equal(t, "{}", string(body), name)
			require.True(t, len(res.Header["Content-Length"])+len(res.TransferEncoding) <= 1, name)
		}
	}
}
