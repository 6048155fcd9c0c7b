package app

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/app/moving"
	"understudy/internal/config"
	"understudy/internal/logtest"
	"understudy/internal/postgrestest"
)

// deployment is a langgraph.json with encryption.path, on a database of its own.
type deployment struct {
	t          *testing.T
	file       string
	flags      map[string]string
	has        func(text string) []string // where a text can be read
	mode, call string                     // files of the handlers, see gate/testdata/encryption.py
}

func deploy(t *testing.T, engine, spec string) *deployment {
	t.Helper()
	python := os.Getenv("UNDERSTUDY_TEST_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set UNDERSTUDY_TEST_PYTHON")
	}
	dir := t.TempDir()
	d := &deployment{
		t: t, file: filepath.Join(dir, "langgraph.json"), mode: filepath.Join(dir, "mode"), call: filepath.Join(dir, "calls"),
		flags: map[string]string{"port": "0", "synchronous": "normal", "python": python, "gate-timeout": "2s"},
	}
	handlers, err := filepath.Abs("../../gate/testdata/encryption.py")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "agent.py"), nil, 0o600))
	text, err := json.Marshal(map[string]any{
		"graphs": map[string]string{"unused": "./agent.py:graph"}, "encryption": map[string]any{"path": handlers + ":" + spec}, "env": map[string]string{"UNDERSTUDY_TEST_MODE": d.mode, "UNDERSTUDY_TEST_CALLS": d.call},
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(d.file, text, 0o600))
	if engine == "sqlite" {
		data := t.TempDir()
		d.flags["data"] = data
		d.has = func(text string) []string { return folderHas(t, data, text) }
	} else {
		d.flags["database-url"], d.flags["database-connections"] = postgrestest.Database(t), "4"
		d.has = func(text string) []string { return databaseHas(t, d.flags["database-url"], text) }
	}
	return d
}

// settings are those with the handlers, and with keys of LANGGRAPH_AES_KEY too.
func (d *deployment) settings(keys string, dataOnly bool) *config.Config {
	d.t.Helper()
	settings, _, err := config.Load(config.Source{Mode: config.Serve, File: d.file, Flags: d.flags, DataOnly: dataOnly, Lookup: func(name string) (string, bool) {
		if name == "LANGGRAPH_AES_KEY" {
			return keys, keys != ""
		}
		return "", false
	}})
	require.NoError(d.t, err)
	settings.Graphs = nil // the one of the tests is in Go
	return settings
}

func (d *deployment) does(mode string) {
	require.NoError(d.t, os.WriteFile(d.mode, []byte(mode), 0o600))
}

// calls counts what handlers were asked.
func (d *deployment) calls(what string) int {
	b, err := os.ReadFile(d.call)
	if err != nil {
		return 0
	}
	return strings.Count(string(b), what)
}

// request sends a request in an encryption context, "" for none, and returns status and body.
func request(t *testing.T, in, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	if in != "" {
		req.Header.Set("X-Encryption-Context", base64.StdEncoding.EncodeToString([]byte(in)))
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

// converse makes a thread in a context, and returns it.
func converse(t *testing.T, in, url, text string) (thread string) {
	t.Helper()
	status, body := request(t, in, "POST", url+"/threads", `{"metadata":{"plain":"visible","email":"`+text+`"}}`)
	require.Equal(t, 200, status, body)
	at := strings.Index(body, `"thread_id":"`) + len(`"thread_id":"`)
	thread = body[at : at+36]
	status, body = request(t, in, "POST", url+"/threads/"+thread+"/runs/wait", `{"assistant_id":"note","input":{"text":"`+text+`"}}`)
	require.Equal(t, 200, status, body)
	require.Contains(t, body, "answer to "+text)
	return thread
}

func engines(t *testing.T, fn func(t *testing.T, engine string)) {
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			fn(t, engine)
		})
	}
}

// With handlers nothing can be read in the database, whatever was in it before; what encrypt.json leaves readable is found by the index.
func TestHandlersEncryptEverything(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, engine string) {
		d := deploy(t, engine, "encryption")
		nothing := slog.New(slog.DiscardHandler)
		var before, native, thread string
		serveOnce(t, encrypted(t, "", "", d.flags), func(url string) { before = work(t, url) })
		serveOnce(t, encrypted(t, keyOne, "", d.flags), func(url string) { native = work(t, url) })
		require.NotEmpty(t, d.has("MARKER"))

		changed, err := moving.Encrypt(t.Context(), d.settings(keyOne, true), nothing)
		require.NoError(t, err)
		require.Positive(t, changed)
		require.Empty(t, d.has("MARKER"))
		again, err := moving.Encrypt(t.Context(), d.settings("", true), nothing)
		require.NoError(t, err)
		require.Zero(t, again, "all has a data key of the handlers")

		serveOnce(t, d.settings("", false), func(url string) {
			check(t, url, before)
			check(t, url, native)
			thread = work(t, url)
			check(t, url, thread)
			for _, in := range []string{`{"tenant":"a"}`, `{"tenant":"b","n":1.5}`} {
				converse(t, in, url, "MARKER-tenant")
			}
			status, body := request(t, "", "POST", url+"/threads/search", `{"metadata":{"plain":"visible"},"limit":100}`)
			require.Equal(t, 200, status)
			require.Contains(t, body, "MARKER-tenant")
		})
		require.Empty(t, d.has("MARKER"))
		require.NotEmpty(t, d.has("visible"), "the index of metadata is readable, and so is that nothing is missed here")
		require.Less(t, d.calls("crypt {"), 60, "handlers are asked once per key, not once per value")

		for keys, want := range map[string]string{"": "encryption.path", keyOne: "encryption.path"} {
			_, err := New(t.Context(), Config{Settings: encrypted(t, keys, "", d.flags)})
			require.ErrorContains(t, err, want)
		}
		serveOnce(t, d.settings("", false), func(url string) { check(t, url, thread) })

		out := filepath.Join(t.TempDir(), "out.sqlite")
		_, err = moving.Export{To: out}.Run(t.Context(), d.settings("", true))
		require.NoError(t, err)
		require.NotEmpty(t, folderHas(t, filepath.Dir(out), "MARKER"), "an export is decrypted")
	})
}

// Broken headers are 422, and clients do not see the context of a run in its configuration.
func TestEncryptionContextOfRequests(t *testing.T) {
	t.Parallel()
	d := deploy(t, "sqlite", "encryption")
	serveOnce(t, d.settings("", false), func(url string) {
		for _, value := range []string{"%%%", "bm90anNvbg==", "WzFd", "IiI=", base64.StdEncoding.EncodeToString([]byte(`{"a":"` + strings.Repeat("x", 5000) + `"}`))} {
			for _, path := range []string{"/threads", "/threads/search", "/assistants/search", "/store/items/search", "/runs/wait", "/nowhere"} {
				req, err := http.NewRequestWithContext(t.Context(), "POST", url+path, strings.NewReader(`{}`))
				require.NoError(t, err)
				req.Header.Set("X-Encryption-Context", value)
				resp, err := http.DefaultClient.Do(req)
				require.NoError(t, err)
				text, err := io.ReadAll(resp.Body)
				require.NoError(t, errors.Join(err, resp.Body.Close()))
				require.Equal(t, 422, resp.StatusCode, "%s %s", path, text)
				require.Contains(t, string(text), "Invalid X-Encryption-Context header: ")
			}
		}
		in := `{"tenant":"a"}`
		thread := converse(t, in, url, "hello")
		status, body := request(t, "", "GET", url+"/threads/"+thread+"/runs", "")
		require.Equal(t, 200, status)
		require.Contains(t, body, `"configurable"`)
		require.NotContains(t, body, "__encryption_context__")
		status, body = request(t, in, "POST", url+"/runs/crons", `{"assistant_id":"note","schedule":"0 0 1 1 *","input":{"text":"x"},"config":{"configurable":{"__encryption_context__":{"tenant":"b"}}}}`)
		require.Equal(t, 200, status, body)
		require.NotContains(t, body, "__encryption_context__")
		// A client cannot choose it but by the header.
		before := d.calls(`encrypt {"tenant": "b"}`)
		status, body = request(t, "", "POST", url+"/threads/"+thread+"/runs/wait", `{"assistant_id":"note","input":{"text":"x"},"config":{"configurable":{"__encryption_context__":{"tenant":"b"}}}}`)
		require.Equal(t, 200, status, body)
		require.Equal(t, before, d.calls(`encrypt {"tenant": "b"}`))
	})
}

// Each context has one data key, however many requests need it at once.
func TestManyRunsAskHandlersOnce(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, engine string) {
		d := deploy(t, engine, "encryption")
		serveOnce(t, d.settings("", false), func(url string) {
			var all sync.WaitGroup
			for i := range 200 {
				all.Go(func() { converse(t, `{"tenant":"t`+strconv.Itoa(i%10)+`"}`, url, "MARKER-"+strconv.Itoa(i)) })
			}
			all.Wait()
		})
		require.Empty(t, d.has("MARKER"))
		require.Equal(t, 11, d.calls("encrypt {"), "one data key for each context, and one without")
		require.Equal(t, 11, d.calls("decrypt {"))
	})
}

// Whatever handlers do, nothing is written that is not encrypted, what has a data key works, and the server recovers.
func TestHandlersThatFail(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, engine string) {
		d := deploy(t, engine, "encryption")
		serveOnce(t, d.settings("", false), func(url string) {
			known := `{"tenant":"known"}`
			thread := converse(t, known, url, "MARKER-first")
			for i, mode := range []string{"raise", "slow", "plain", "text", "wrong", "die"} {
				d.does(mode)
				status, body := request(t, fmt.Sprintf(`{"tenant":"new %d"}`, i), "POST", url+"/threads", `{"metadata":{"x":"MARKER-lost"}}`)
				require.GreaterOrEqual(t, status, 500, "%s: %s", mode, body)
				require.NotContains(t, body, "key service")
				if mode != "die" && mode != "slow" && mode != "raise" {
					// The handler of @encryption.context works: what has a data key does.
					status, body = request(t, known, "POST", url+"/threads/"+thread+"/runs/wait", `{"assistant_id":"note","input":{"text":"MARKER-again"}}`)
					require.Equal(t, 200, status, "%s: %s", mode, body)
				}
				d.does("")
				require.Eventually(t, func() bool {
					status, _ := request(t, fmt.Sprintf(`{"tenant":"new %d"}`, i), "POST", url+"/threads", `{}`)
					return status == 200
				}, 20*time.Second, 10*time.Millisecond, mode)
			}
		})
		require.Empty(t, d.has("MARKER"))

		// A wrong key, or none, is no start.
		for _, mode := range []string{"wrong", "raise"} {
			d.does(mode)
			_, err := New(t.Context(), Config{Settings: d.settings("", false)})
			require.Error(t, err, mode)
		}
		d.does("")
		serveOnce(t, d.settings("", false), func(url string) { converse(t, "", url, "MARKER-again") })
	})
}

// A data key that is refused makes the content of its context unreadable, and no other.
func TestContextThatIsWithdrawn(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, engine string) {
		d := deploy(t, engine, "encryption")
		var a, b string
		serveOnce(t, d.settings("", false), func(url string) {
			a, b = converse(t, `{"tenant":"a"}`, url, "first"), converse(t, `{"tenant":"b"}`, url, "second")
		})
		d.does("refuse b")
		serveOnce(t, d.settings("", false), func(url string) {
			status, body := request(t, "", "GET", url+"/threads/"+a+"/state", "")
			require.Equal(t, 200, status, body)
			status, body = request(t, "", "GET", url+"/threads/"+b+"/state", "")
			require.GreaterOrEqual(t, status, 500, body)
			require.NotContains(t, body, "second")
			status, _ = request(t, `{"tenant":"b"}`, "POST", url+"/threads", "{}")
			require.GreaterOrEqual(t, status, 500)
			converse(t, `{"tenant":"a"}`, url, "third")
		})
		d.does("rotate")
		was := d.calls("decrypt {")
		serveOnce(t, d.settings("", false), func(url string) { converse(t, `{"tenant":"b"}`, url, "fourth") })
		require.Greater(t, d.calls("decrypt {")-was, 3, "replacements are decrypted before they are stored")
		serveOnce(t, d.settings("", false), func(url string) {
			status, body := request(t, "", "GET", url+"/threads/"+b+"/state", "")
			require.Equal(t, 200, status, body)
		})
	})
}

// Whatever handlers do for the key of one context, servers start, and others are served.
func TestContextThatHoldsUpHandlers(t *testing.T) {
	t.Parallel()
	d := deploy(t, "sqlite", "encryption")
	var a string
	serveOnce(t, d.settings("", false), func(url string) {
		a = converse(t, `{"tenant":"a"}`, url, "first")
		converse(t, `{"tenant":"b"}`, url, "second")
	})
	for _, mode := range []string{"hang b", "exit b", "cancel b", "die b"} {
		d.does(mode)
		serveOnce(t, d.settings("", false), func(url string) {
			require.Eventually(t, func() bool { // a process that died is started again
				status, body := request(t, `{"tenant":"a"}`, "POST", url+"/threads", "{}")
				require.Contains(t, []int{200, 503}, status, "%s: %s", mode, body)
				return status == 200
			}, 20*time.Second, 10*time.Millisecond, mode)
			status, body := request(t, "", "GET", url+"/threads/"+a+"/state", "")
			require.Equal(t, 200, status, body)
			status, body = request(t, `{"tenant":"b"}`, "POST", url+"/threads", "{}")
			require.GreaterOrEqual(t, status, 500, "%s: %s", mode, body)
		})
	}
}

// Servers of one database use data keys that another one made, also inside of transactions.
func TestServersShareDataKeys(t *testing.T) {
	t.Parallel()
	d := deploy(t, "postgres", "encryption")
	serveOnce(t, d.settings("", false), func(one string) {
		serveOnce(t, d.settings("", false), func(two string) {
			for i := range 5 {
				in := fmt.Sprintf(`{"tenant":"%d"}`, i)
				thread := converse(t, in, one, "MARKER-shared")
				if i%2 == 0 {
					status, body := request(t, "", "GET", two+"/threads/"+thread+"/state", "")
					require.Equal(t, 200, status, body)
					require.Contains(t, body, "MARKER-shared")
				}
				// Without reading it before: the transaction meets the key.
				status, body := request(t, "", "PATCH", two+"/threads/"+thread, `{"metadata":{"more":"MARKER-more"}}`)
				require.Equal(t, 200, status, body)
				converse(t, in, two, "MARKER-two")
			}
		})
	})
	require.Empty(t, d.has("MARKER"))
	require.Equal(t, 6, d.calls("encrypt {"), "the servers have the same data key for a context")
}

// What has a data key works while the process of the handlers is not there.
func TestHandlersThatAreKilled(t *testing.T) {
	t.Parallel()
	d := deploy(t, "sqlite", "only_json")
	settings := d.settings("", false)
	s, err := New(t.Context(), Config{Settings: settings})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	pid := s.encryption.PID()
	process, err := os.FindProcess(pid)
	require.NoError(t, err)
	require.NoError(t, process.Kill())
	require.Eventually(t, func() bool { return s.encryption.PID() != pid && s.encryption.Up() == nil }, 20*time.Second, 10*time.Millisecond)
	wrapped, err := s.encryption.Wrap(t.Context(), "", []byte("0123456789abcdef"))
	require.NoError(t, err)
	require.NotEmpty(t, wrapped)
}

// A start that waits for handlers says what it waits for, and ends with its context: Ctrl-C ends the server before it listens too.
func TestAStartThatWaitsForHandlersEndsWithItsContext(t *testing.T) {
	t.Parallel()
	d := deploy(t, "sqlite", "encryption")
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(d.file), "slow.py"), []byte("import time\ntime.sleep(3600)\n"), 0o600))
	settings := d.settings("", false)
	settings.Encryption.Path = filepath.Join(filepath.Dir(d.file), "slow.py")
	var log logtest.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := New(ctx, Config{Settings: settings, Log: slog.New(slog.NewTextHandler(&log, nil))})
		ended <- err
	}()
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "slow.py:2") }, time.Minute, 10*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}
