package gate

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/logtest"
)

// lineWith is a log that notices a line that has all texts.
type lineWith struct {
	texts []string
	found chan struct{} // has room for one
}

func (l lineWith) Write(b []byte) (int, error) {
	for _, text := range l.texts {
		if !bytes.Contains(b, []byte(text)) {
			return len(b), nil
		}
	}
	select {
	case l.found <- struct{}{}:
	default:
	}
	return len(b), nil
}

// A part that does not finish loading is named within three seconds, with the line where it waits, and the end of the context ends the process.
func TestLoadingThatHangs(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("testdata/slow.py")
	require.NoError(t, err)
	lineOf := func(mark string) string {
		before, _, found := strings.Cut(string(source), mark)
		require.True(t, found)
		return ":" + strconv.Itoa(1+strings.Count(before, "\n"))
	}
	for name, c := range map[string]struct {
		hangs string
		set   func(*Options)
		want  []string
	}{
		"auth":       {"import", func(o *Options) { o.Auth = "./slow.py:auth" }, []string{"part=auth.path", "names=./slow.py:auth", lineOf("# HERE")}},
		"embed":      {"import", func(o *Options) { o.Embed = "./slow.py:embed" }, []string{"part=store.index.embed", lineOf("# HERE")}},
		"app":        {"import", func(o *Options) { o.App = "./slow.py:app" }, []string{"part=http.app", lineOf("# HERE")}},
		"lifespan":   {"startup", func(o *Options) { o.App = "./slow.py:app" }, []string{"part=http.app", lineOf("# ALSO HERE")}},
		"encryption": {"import", func(o *Options) { o.Encryption = "./slow.py:encryption" }, []string{"part=encryption.path", lineOf("# HERE")}},
		"lock": {"lock", func(o *Options) { o.Auth, o.App = "./slow.py:auth", "./slow.py:app" }, []string{
			"part=auth.path", "names=./slow.py:auth",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			c.set(&o)
			o.Env = append(o.Env, "HANGS="+c.hangs)
			said := lineWith{append(c.want, "takes long to load", "Ctrl-C stops the server"), make(chan struct{}, 1)}
			o.Logger = slog.New(slog.NewTextHandler(said, nil))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				if o.Encryption != "" {
					_, err := StartEncryption(ctx, o)
					ended <- err
					return
				}
				ended <- New(o).Run(ctx)
			}()
			select {
			case <-said.found:
			case err := <-ended:
				require.FailNow(t, "it ended", "%v", err)
			}
			cancel()
			err := <-ended
			if o.Encryption != "" {
				require.ErrorIs(t, err, context.Canceled)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// When the time for loading is over, the error says where it was spent.
func TestLoadingThatTakesTooLong(t *testing.T) {
	t.Parallel()
	p := New(Options{Auth: "./auth.py:auth", App: "./app.py:app"}).newProcess()
	require.False(t, p.loads([]byte("a line of a handler\n")))
	require.True(t, p.loads([]byte("\x1eunderstudy is loading {\"part\":\"auth\",\"place\":\"/srv/auth.py:7\"}\n")))
	p.kill("it did not load within 2m0s")
	p.conclude(nil)
	require.Equal(t, &StartError{Part: "auth.path", Spec: "./auth.py:auth", Reason: "it did not load within 2m0s", Place: "/srv/auth.py:7", Fix: fixLoading}, p.startErr)
}

// What is advised depends on how the time was spent: code that computes, or has no processor on a busy machine, does not wait for anything.
func TestLoadingThatComputes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		report string
		level  string
		fix    string
	}{
		"waits":          {`"took":2,"cpu":0.1,"queued":0.2`, "WARN", fixLoading},
		"computes":       {`"took":2,"cpu":1.6,"queued":0`, "INFO", fixComputing},
		"a busy machine": {`"took":2,"cpu":0.2,"queued":1.5`, "INFO", fixComputing},
		"unknown":        {`"took":0`, "WARN", fixLoading},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &logtest.Buffer{}
			p := New(Options{App: "./app.py:app", Logger: slog.New(slog.NewTextHandler(log, nil))}).newProcess()
			require.True(t, p.loads([]byte("\x1eunderstudy is loading {\"part\":\"app\",\"began\":true}\n")))
			require.True(t, p.loads([]byte("\x1eunderstudy is loading {\"part\":\"app\",\"place\":\"/srv/app.py:1\","+c.report+"}\n")))
			p.logLoading(time.Now().Add(2*time.Second), 2*time.Second)
			require.Contains(t, log.String(), "level="+c.level)
			require.Contains(t, log.String(), "fix="+strconv.Quote(c.fix))
			require.Equal(t, c.fix == fixComputing, strings.Contains(log.String(), "processor_time="))
			p.kill("it did not load within 2m0s")
			p.conclude(nil)
			require.Equal(t, c.fix, p.startErr.(*StartError).Fix) //nolint:errorlint // conclude wraps nothing
		})
	}
}

// A process says how it spends the time of loading.
func TestLoadingThatSpins(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.App = "./slow.py:app"
	o.Env = append(o.Env, "HANGS=compute")
	said := lineWith{[]string{"level=INFO", "takes long to load", "part=http.app", "processor_time=", "the machine is busy, or the imports are large"}, make(chan struct{}, 1)}
	o.Logger = slog.New(slog.NewTextHandler(said, nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- New(o).Run(ctx) }()
	select {
	case <-said.found:
	case err := <-ended:
		require.FailNow(t, "it ended", "%v", err)
	}
	cancel()
	require.NoError(t, <-ended)
}

// The time of the interpreter's own start is no reason to warn of the code of the deployment, whose time counts from its import on.
func TestInterpreterThatStartsSlowly(t *testing.T) {
	t.Parallel()
	log := &logtest.Buffer{}
	g := New(Options{Auth: "./auth.py:auth", Logger: slog.New(slog.NewTextHandler(log, nil))})
	p := g.newProcess()
	began := time.Now()
	p.logLoading(began.Add(time.Hour), time.Hour)
	require.Contains(t, log.String(), "level=INFO")
	require.NotContains(t, log.String(), "takes long")
	before := log.String()
	require.True(t, p.loads([]byte("\x1eunderstudy is loading {\"part\":\"auth\",\"began\":true}\n")))
	p.logLoading(time.Now().Add(g.slowStart), time.Hour)
	require.Equal(t, before, log.String())
	p.logLoading(time.Now().Add(g.slowStart+2*time.Second), time.Hour)
	require.Contains(t, log.String(), "level=WARN")
	require.Contains(t, log.String(), "takes long to load")
	require.Contains(t, log.String(), "part=auth.path")
	require.NotContains(t, strings.TrimPrefix(log.String(), before), "3.6e+06", "the time of the start does not count")
}
