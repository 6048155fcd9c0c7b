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
		"lifespan":   {"startup", func(o *Options) { o.App = "./slow.py:app" }, []string{"part=http.app", "the startup (lifespan) of the application has not ended", lineOf("# ALSO HERE")}},
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
			said := lineWith{append(c.want, "gives_up_in=1m5", "Ctrl-C stops the server"), make(chan struct{}, 1)}
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

// What takes long to load is never silent for longer than three seconds, whether the process can say where it is or not, and each line says when the server gives up.
// Of a startup that has not ended the log says that, and no more: how its time was spent is known once it has ended.
func TestLoadingIsNotSilent(t *testing.T) {
	t.Parallel()
	for name, report := range map[string]string{
		"with a place":  `{"part":"app","place":"/srv/app.py:7","took":2,"cpu":0.3,"queued":1.2}`,
		"without one":   "",
		"a startup":     `{"part":"app","stage":"startup","place":"/srv/app.py:9","took":2,"cpu":0.3,"queued":1.2}`,
		"an encryption": `{"part":"encryption","place":"/srv/encryption.py:3","took":2,"cpu":0.3,"queued":0.1}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &logtest.Buffer{}
			o := Options{App: "./app.py:app", Logger: slog.New(slog.NewTextHandler(log, nil))}
			if name == "an encryption" {
				o.App, o.Encryption = "", "./encryption.py:encryption"
			}
			g := New(o)
			p := g.newProcess()
			p.logLoading(time.Now(), g.slowStart+2*time.Second) // the interpreter starts slowly
			require.True(t, p.reports([]byte("\x1eunderstudy is loading {\"part\":\"app\",\"began\":true}\n")))
			began := p.within.began
			reported, logged, longest := began.Add(-g.repeatStart+g.slowStart), began, time.Duration(0)
			for now := began; now.Sub(began) < time.Minute; now = now.Add(g.pingEvery) {
				if report != "" && now.Sub(reported) >= g.repeatStart {
					reported = now
					require.True(t, p.reports([]byte("\x1eunderstudy is loading "+report+"\n")))
				}
				before := log.String()
				p.logLoading(now, now.Sub(began))
				if line := strings.TrimPrefix(log.String(), before); line != "" {
					longest = max(longest, now.Sub(logged))
					logged = now
					require.Contains(t, line, "gives_up_in="+(g.startWithin-now.Sub(began)).Round(time.Second).String())
				}
			}
			require.LessOrEqual(t, longest, 3*time.Second)
			switch name {
			case "an encryption":
				require.Contains(t, log.String(), "the server starts when it is loaded")
				require.NotContains(t, log.String(), "requests wait")
			case "a startup":
				require.Contains(t, log.String(), "the startup (lifespan) of the application has not ended; requests wait")
				require.Contains(t, log.String(), "at=/srv/app.py:9")
				require.NotContains(t, log.String(), "processor")
				require.True(t, p.reports([]byte("\x1eunderstudy is loading "+`{"part":"app","stage":"startup","over":true,"took":60,"cpu":50,"queued":1}`)))
				require.Contains(t, log.String(), "has loaded")
				require.Contains(t, log.String(), "processor_time=50s")
			}
		})
	}
}
