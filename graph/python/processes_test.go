package python_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"understudy/graph"
	"understudy/graph/python"
	"understudy/internal/logtest"
)

// await polls until check holds.
func await(t *testing.T, what string, check func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !check(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestDeadWorkerIsReplaced(t *testing.T) {
	t.Parallel()
	p := start(t, options(t))
	m := newMemory()
	events, err := collect(t, p.Graph("dying"), invocation(m, `{}`, "updates"))
	// Whether the event of the first step got out before the process was gone is a matter of luck; what was saved after it did not either.
	if !errors.Is(err, graph.ErrWorkerDied) || len(events) > 1 {
		t.Errorf("%v %v", events, err)
	}
	same(t, must(t, p, "echo", invocation(newMemory(), `{}`, "updates")), got{"updates", "", `{"echo":{"n":1}}`})
}

func TestBlockedWorkerIsKilledAfterACancel(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workers = 2
	p := start(t, o, func(p *python.Pool) {
		p.SetTimes(50*time.Millisecond, 200*time.Millisecond, time.Minute, 300*time.Millisecond, time.Minute)
	})
	await(t, "both workers", func() bool { return p.InService() == 2 })
	for _, name := range []string{"spinning", "refusing"} {
		cause := errors.New("cancelled by a test")
		ctx, cancel := context.WithCancelCause(context.Background())
		ended := make(chan error, 1)
		go func() {
			var last error
			for _, err := range p.Graph(name).Stream(ctx, invocation(newMemory(), `{}`, "tasks", "values")) {
				last = err
				if err != nil {
					break
				}
			}
			ended <- last
		}()
		time.Sleep(400 * time.Millisecond) // let it block
		// others go to the worker that answers
		begun := time.Now()
		for range 4 {
			must(t, p, "echo", invocation(newMemory(), `{}`, "updates"))
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("%s: others took %v", name, took)
		}
		cancel(cause)
		select {
		case err := <-ended:
			if !errors.Is(err, cause) {
				t.Errorf("%s: ended with %v", name, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: Stream did not return", name)
		}
		await(t, "a second worker again", func() bool { return p.InService() == 2 })
	}
}

func TestIsolated(t *testing.T) {
	t.Parallel()
	p := start(t, options(t))
	inv := invocation(newMemory(), `{}`, "updates")
	inv.Isolated = true
	same(t, must(t, p, "echo", inv), got{"updates", "", `{"echo":{"n":1}}`})
	inv = invocation(newMemory(), `{}`, "updates")
	inv.Isolated = true
	if _, err := collect(t, p.Graph("dying"), inv); !errors.Is(err, graph.ErrWorkerDied) {
		t.Errorf("got %v", err)
	}
	// Of a run whose worker has died before, the node is known, also without checkpoints. Else it is when its checkpoint was saved before.
	isolated := invocation(nil, `{}`, "updates")
	isolated.Isolated, isolated.Saver = true, nil
	saved := invocation(newMemory(), `{}`, "updates")
	saved.Durability = "sync"
	for want, inv := range map[string]graph.Invocation{"in node die": isolated, "in or after node die": saved} {
		_, err := collect(t, p.Graph("dying"), inv)
		var d *graph.Death
		if !errors.As(err, &d) || d.At != want || d.Cause != "it left with exit code 7" {
			t.Errorf("got %v", err)
		}
	}
	await(t, "only the ordinary worker is left", func() bool { return p.Processes() == 1 })
}

func TestStopEndsRuns(t *testing.T) {
	t.Parallel()
	p := python.New(options(t))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	if err := p.Ready(context.Background()); err != nil {
		t.Fatal(err)
	}
	var last error
	for _, err := range p.Graph("waiting").Stream(context.Background(), invocation(newMemory(), `{}`, "updates")) {
		last = err
		cancel()
	}
	if !errors.Is(last, graph.ErrReloading) {
		t.Errorf("the run ended with %v", last)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := collect(t, p.Graph("echo"), invocation(newMemory(), `{}`)); !errors.Is(err, graph.ErrReloading) {
		t.Errorf("afterwards: %v", err)
	}
}

func TestReadyTellsWhyWorkersDoNotStart(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Graphs = map[string]python.Spec{"x": {Path: "./leaves.py:graph"}}
	dir := t.TempDir()
	o.Dir = dir
	if err := os.WriteFile(dir+"/leaves.py", []byte("import os, sys\nsys.stderr.write('so long\\n'); sys.stderr.flush()\nos._exit(3)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := python.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	err := p.Ready(context.Background())
	cancel()
	<-ended
	if err == nil || !strings.Contains(err.Error(), "so long") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v", err)
	}
	o.Python = dir + "/no-such-python"
	p = python.New(o)
	ctx, cancel = context.WithCancel(context.Background())
	go func() { ended <- p.Run(ctx) }()
	err = p.Ready(context.Background())
	cancel()
	<-ended
	if err == nil || !strings.Contains(err.Error(), "no-such-python") {
		t.Errorf("got %v", err)
	}
}

func TestOutputCarriesTheRun(t *testing.T) {
	t.Parallel()
	o := options(t)
	var log logtest.Buffer
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	p := start(t, o)
	inv := invocation(newMemory(), `{}`, "updates")
	must(t, p, "talking", inv)
	for _, want := range []string{
		`msg="graph output" line=said source=stdout`, `msg="graph output" line=logged source=mine`,
	} {
		await(t, want, func() bool {
			for line := range strings.SplitSeq(log.String(), "\n") {
				if strings.Contains(line, want) && strings.Contains(line, "run_id="+string(inv.Run)) && strings.Contains(line, "thread_id="+string(inv.Thread)) {
					return true
				}
			}
			return false
		})
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	p := start(t, options(t))
	var all sync.WaitGroup
	for i := range 30 {
		all.Go(func() {
			n := strconv.Itoa(i)
			events, err := collect(t, p.Graph("echo"), invocation(newMemory(), `{"n":`+n+`}`, "values"))
			if err != nil || len(events) != 2 || events[1].data != `{"n":`+strconv.Itoa(i+1)+`}` {
				t.Errorf("%s: %v %v", n, events, err)
			}
		})
	}
	all.Wait()
}
