package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/framingtest"
)

// raw sends bytes and returns the statuses of all answers until the server closes the connection. With half it first closes the
// sending side.
func raw(t *testing.T, w *world, text string, half bool) []int {
	t.Helper()
	conn, err := net.Dial("tcp", w.addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = io.WriteString(conn, text)
	require.NoError(t, err)
	if half {
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	}
	var statuses []int
	for in := bufio.NewReader(conn); ; {
		if _, err := in.Peek(1); err != nil {
			require.ErrorIs(t, err, io.EOF, "%q: the connection stays open", text)
			return statuses
		}
		res, err := http.ReadResponse(in, nil)
		require.NoError(t, err, text)
		_, err = io.Copy(io.Discard, res.Body)
		require.NoError(t, err, text)
		statuses = append(statuses, res.StatusCode)
	}
}

// A request that another server could take for two, or for another one, is refused, and nothing behind it is read. LangGraph Server refuses the same.
func TestFraming(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for name, text := range framingtest.Refused() {
		require.Equal(t, []int{400}, raw(t, w, text, false), name)
	}
	require.Nil(t, w.last())
	for name, text := range framingtest.Taken() {
		require.Equal(t, []int{200}, raw(t, w, text, false), name)
	}
}

// A client that speaks TLS learns at once that this is plain HTTP, instead of waiting for a handshake.
func TestTLSClient(t *testing.T) {
	t.Parallel()
	w := setup(t)
	client := &http.Client{Transport: &http.Transport{TLSHandshakeTimeout: 30 * time.Second}}
	_, err := client.Get("https://" + w.addr + "/ok")
	require.ErrorContains(t, err, "server gave HTTP response to HTTPS client")
	require.Equal(t, []int{400}, raw(t, w, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", false))
	require.Equal(t, []int{200}, raw(t, w, "GET /ok HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", false))
}

// A body that ends before its last chunk is not acted upon, wherever it breaks off. One that is whole is, also when its sender sends no more.
func TestChunksThatBreakOff(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const head = "POST /threads HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
	const body = "2\r\n{}\r\n1\r\n \r\n0\r\n\r\n"
	for n := range len(body) {
		statuses := raw(t, w, head+body[:n], true)
		for _, s := range statuses {
			require.Equal(t, 400, s, "%q", body[:n])
		}
		require.Nil(t, w.last(), "%q", body[:n])
	}
	require.Equal(t, []int{200}, raw(t, w, head+body, true))
	require.NotNil(t, w.last())
}
