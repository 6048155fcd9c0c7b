package doctor

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/config"
)

// No check is silent for longer than three seconds: what takes long says what it does, and then what is left of it.
func TestSlowChecksSaySo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		last, silent := time.Now(), time.Duration(0)
		say := func(text string) {
			said = append(said, text)
			silent = max(silent, time.Since(last))
			last = time.Now()
		}
		d := &doctor{Examination: Examination{Doing: say, Still: say}}
		d.slow("asking", time.Minute)()
		require.Empty(t, said, "it was quick")
		graphs := &unfinished{names: []string{"a", "b", "c"}}
		done := d.slowly("importing the graphs, each", time.Minute, graphs.text)
		for _, name := range []string{"a", "b", "c"} {
			time.Sleep(4500 * time.Millisecond)
			graphs.remove(name)
		}
		time.Sleep(3 * time.Second)
		done()
		time.Sleep(time.Minute)
		require.Equal(t, []string{
			"importing the graphs, each, for at most 1m0s", "still importing the graphs: a, and 2 after it, for 4s", "still importing the graphs: b, and 1 after it, for 7s",
			"still importing the graphs: c, for 10s", "still importing the graphs: c, for 13s", "still importing the graphs, for 16s",
		}, said)
		require.LessOrEqual(t, silent, stillEvery)
	})
}

// Models that hang are named every three seconds, and no longer once they have answered.
func TestModelsThatHangAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		d := &doctor{Examination: Examination{Still: func(text string) { said = append(said, text) }}}
		waiting := &unfinished{names: []string{"openai:a", "openai:b"}}
		done := d.stillAsking(waiting)
		time.Sleep(4 * time.Second)
		waiting.remove("openai:a")
		time.Sleep(3 * time.Second)
		waiting.remove("openai:b")
		time.Sleep(time.Minute)
		done()
		require.Equal(t, []string{"still asking openai:a, openai:b, for 3s", "still asking openai:b, for 6s"}, said)
	})
}

// One model that hangs does not hold up the others: four are asked at the same time, and no more.
func TestModelsAreAskedAtOnce(t *testing.T) {
	t.Parallel()
	const models = modelsAtOnce + 2
	var mu sync.Mutex
	asked, most, full := 0, 0, make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if asked++; asked > most {
			if most = asked; most == modelsAtOnce {
				close(full)
			}
		}
		mu.Unlock()
		select {
		case <-full:
		case <-r.Context().Done():
		}
		mu.Lock()
		asked--
		mu.Unlock()
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	var graphs []string
	for i := range models {
		graphs = append(graphs, fmt.Sprintf(`"g%d": {"agent": {"model": {"name": "openai:m%d", "base_url": "%s", "api_key": "k", "retries": 0}}}`, i, i, server.URL))
	}
	p := newPatient(t)
	p.models = true
	p.write("langgraph.json", `{"graphs": {`+strings.Join(graphs, ", ")+`}}`)
	require.Equal(t, models, strings.Count(p.examine(), "401 Unauthorized"))
	require.Equal(t, modelsAtOnce, most)
}

// A Redis that accepts connections and does not answer is named while doctor waits for it.
func TestRedisThatIsSilentIsNamed(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var said []string
	d := &doctor{Examination: Examination{Doing: func(text string) { said = append(said, text); cancel() }}}
	cfg := &config.Config{}
	cfg.Streams.RedisURL, cfg.Storage.DatabaseURL = "redis://"+listener.Addr().String(), "postgres://unused"
	d.redis(ctx, cfg)
	require.NoError(t, listener.Close())
	<-ended
	require.Equal(t, []string{"waiting for redis on " + cfg.RedisPlace() + ", for at most 5s"}, said)
}
