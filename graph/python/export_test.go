package python

import (
	"bufio"
	"bytes"
	"testing"
	"time"
)

// SetTimes shortens what tests would wait for. Call it before Run.
func (p *Pool) SetTimes(pingEvery, answerWithin, silence, cancelGrace, killGrace time.Duration) {
	p.pingEvery, p.answerWithin, p.silence, p.cancelGrace, p.killGrace = pingEvery, answerWithin, silence, cancelGrace, killGrace
}

// Processes counts worker processes.
func (p *Pool) Processes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.workers)
}

// InService counts the workers that take runs and answer.
func (p *Pool) InService() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for w := range p.workers {
		if takes, _, answers := w.load(time.Now()); takes && answers {
			n++
		}
	}
	return n
}

type nothing struct{}

func (nothing) hello(hello) {}
func (nothing) event(event) {}
func (nothing) done(done)   {}
func (nothing) ask(a ask) {
	_, _ = readPut(&decoder{b: a.args})
	_ = readWrites(&decoder{b: a.args})
	rootPut(&a)
}
func (nothing) log(logLine) {}
func (nothing) pong(uint64) {}

func FuzzFrames(f *testing.F) {
	f.Add([]byte{0, 0, 0, 3, 0x92, 6, 1})
	f.Add([]byte{0, 0, 0, 14, 0x96, 2, 1, 0xa1, 'v', 0xa0, 0xc4, 2, '{', '}', 0xc0, 0x92, 6, 1, 0x90})
	f.Add([]byte{0, 0, 0, 12, 0x96, 4, 1, 2, 0xa3, 'p', 'u', 't', 0x91, 0x94, 0xa0, 1})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReader(bytes.NewReader(b))
		for {
			body, err := readFrame(r)
			if err != nil {
				return
			}
			_ = decode(body, nothing{})
		}
	})
}
