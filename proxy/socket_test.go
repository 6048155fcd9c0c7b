package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/stretchr/testify/require"

	"understudy/eventstore/overlay"
)

// However frames arrive, what is not changed passes byte for byte, and messages are seen whole and once.
func TestFramesPass(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		all, changed, messages := []byte{}, []byte{}, []string{}
		masked := r.IntN(2) == 0
		frame := func(op ws.OpCode, fin bool, payload []byte) []byte {
			f := ws.NewFrame(op, fin, payload)
			if masked {
				f = ws.MaskFrameWith(f, [4]byte{1, 2, byte(seed), 4})
			}
			return ws.MustCompileFrame(f)
		}
		for range r.IntN(12) {
			payload := []byte(strings.Repeat("x", []int{0, 1, 125, 126, 3000, 70_000}[r.IntN(6)]))
			op, fin := []ws.OpCode{ws.OpText, ws.OpText, ws.OpText, ws.OpBinary, ws.OpPing, ws.OpContinuation}[r.IntN(6)], r.IntN(4) > 0
			if op.IsControl() {
				payload, fin = payload[:min(len(payload), 125)], true
			}
			b := frame(op, fin, payload)
			all = append(all, b...)
			if op == ws.OpText && fin && len(payload) <= 5000 {
				messages = append(messages, string(payload))
				b = frame(op, fin, append([]byte("seen "), payload...))
			}
			changed = append(changed, b...)
		}
		half := all[:len(all)-r.IntN(len(all)+1)*r.IntN(2)]
		for _, tt := range []struct {
			in, want []byte
			each     func([]byte) ([]byte, bool)
		}{
			{half, half, func(m []byte) ([]byte, bool) { return m, true }},
			{all, changed, func(m []byte) ([]byte, bool) { return append([]byte("seen "), m...), true }},
		} {
			f := frames{limit: 5000, budget: &budget{limit: 1 << 30}}
			var got []byte
			var seen []string
			for in := tt.in; len(in) > 0; {
				n := min(1+r.IntN([]int{1, 10, 10_000}[r.IntN(3)]), len(in))
				chunk := bytes.Clone(in[:n])
				got = f.pass(got, chunk, func(m []byte) ([]byte, bool) {
					seen = append(seen, string(m))
					return tt.each(m)
				})
				clear(chunk) // it is the caller's
				in = in[n:]
			}
			got = append(got, f.rest()...)
			require.True(t, bytes.Equal(tt.want, got), "seed %d: %d bytes, not %d", seed, len(got), len(tt.want))
			if len(tt.in) == len(all) {
				require.Equal(t, len(messages), len(seen), "seed %d", seed)
			}
			require.Zero(t, f.budget.used.Load())
		}
	}
}

// Of a socket for events the recorder sees each event and each command, and their answers; what is hidden does not arrive.
func TestSocketIsInspected(t *testing.T) {
	t.Parallel()
	got := make(chan string, 10)
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Sec-Websocket-Extensions") != "" {
			w.WriteHeader(400)
			return
		}
		c, _, _, err := ws.UpgradeHTTP(r, w)
		if err != nil {
			return
		}
		defer c.Close()
		for _, m := range []string{
			`{"type":"event","method":"values","seq":1}`, `{"type":"event","method":"messages","seq":2}`, `no JSON`, `{"type":"event","method":"values","seq":3}`,
		} {
			if wsutil.WriteServerText(c, []byte(m)) != nil {
				return
			}
		}
		for {
			m, err := wsutil.ReadClientText(c)
			if err != nil {
				return
			}
			got <- string(m)
			_ = wsutil.WriteServerText(c, []byte(`{"type":"success","id":7,"result":{}}`))
		}
	})
	w.recorder.event = func(event string, data []byte) ([]byte, overlay.Fate) {
		if event == "messages" {
			return nil, overlay.Hidden
		}
		return bytes.ReplaceAll(data, []byte(`"type":"event"`), []byte(`"type":"event","shown":true`)), overlay.Shown
	}
	dialer := ws.Dialer{Header: ws.HandshakeHeaderHTTP{"Sec-WebSocket-Extensions": {"permessage-deflate"}}}
	conn, buffered, _, err := dialer.Dial(context.Background(), "ws://"+w.addr+"/threads/"+aThread+"/stream/events")
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	in := io.Reader(conn)
	if buffered != nil {
		in = buffered
	}
	both := struct {
		io.Reader
		io.Writer
	}{in, conn}
	for _, want := range []string{
		`{"type":"event","shown":true,"method":"values","seq":1}`, `no JSON`, `{"type":"event","shown":true,"method":"values","seq":3}`,
	} {
		m, err := wsutil.ReadServerText(both)
		require.NoError(t, err)
		require.Equal(t, want, string(m))
	}
	require.NoError(t, wsutil.WriteClientText(conn, []byte(`{"id":7,"method":"run.start","params":{"input":["echo",1]}}`)))
	require.Equal(t, `{"id":7,"method":"run.start","params":{"input":[1]}}`, <-got)
	m, err := wsutil.ReadServerText(both)
	require.NoError(t, err)
	require.Equal(t, `{"type":"success","id":7,"result":{}}`, string(m))
	long := fmt.Sprintf(`{"id":8,"x":%q}`, strings.Repeat("echo", maxCommand))
	require.NoError(t, wsutil.WriteClientText(conn, []byte(long)))
	require.Equal(t, long, <-got)
	require.NoError(t, conn.Close())
	<-w.recorder.ended
	require.Equal(t, []string{"watch " + aThread, "input " + aThread}, w.recorder.notes()[:2])
	require.Zero(t, w.proxy.held.used.Load())
}
