package child

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// DumpSignal makes a process write the Python stack of the thread that receives it to its stderr, without Python's global lock (faulthandler). stall.py registers
// it. It is the tenth of the real-time signals, which nothing else uses; Linux only.
const DumpSignal = 44

// Stall finds out what a process does that does not answer, without its help: it may hold Python's global lock, or be stopped. Its owner calls Look, a moment later
// Ask, and a moment later reads what it found. Take is called by another goroutine.
type Stall struct {
	pid   int
	times reading        // nil: threadTimes
	first map[int]uint64 // processor time of the threads at Look, in ticks

	why   Why
	asked atomic.Bool

	mu     sync.Mutex
	within bool // a stack is being read
	frames []Frame
}

// reading reads the processor time of the threads of a process, the state of the process, and whether a thread is ready to run.
type reading func(pid int) (ticks map[int]uint64, state byte, ready bool)

// Why says what holds a process up.
type Why int

// What holds a process up.
const (
	Unknown Why = iota
	Busy        // a thread computes
	Stopped     // by a signal or a debugger
	Starved     // it is ready to run and gets no processor time
)

// Frame is a line of a Python stack.
type Frame struct {
	File, Function string
	Line           int
}

// Why returns what Ask found.
func (s *Stall) Why() Why { return s.why }

// Frames returns the stack that the process wrote after Ask, the innermost frame first; empty when it has written none.
func (s *Stall) Frames() []Frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frames
}

// maxFrames is how many frames of a stack are kept; faulthandler writes 100.
const maxFrames = 100

var frameLine = regexp.MustCompile(`^  File "(.*)", line (\d+) in (.*)$`)

// Take reports whether a line of stderr belongs to the stack that was requested, and keeps it.
func (s *Stall) Take(line []byte) bool {
	if !s.asked.Load() {
		return false
	}
	text := string(bytes.TrimRight(line, "\r\n"))
	s.mu.Lock()
	defer s.mu.Unlock()
	if text == "Stack (most recent call first):" {
		s.within = len(s.frames) == 0
		return true
	}
	if !s.within {
		return false
	}
	m := frameLine.FindStringSubmatch(text)
	if m == nil {
		s.within = text == "  ..."
		return s.within
	}
	number, _ := strconv.Atoi(m[2])
	if len(s.frames) < maxFrames {
		s.frames = append(s.frames, Frame{File: unescape(m[1]), Function: unescape(m[3]), Line: number})
	}
	return true
}

var escape = regexp.MustCompile(`\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})`)

// unescape returns a text that faulthandler wrote, in which other characters than those of ASCII are escaped.
func unescape(text string) string {
	return escape.ReplaceAllStringFunc(text, func(code string) string {
		r, err := strconv.ParseInt(code[2:], 16, 32)
		if err != nil {
			return code
		}
		return string(rune(r))
	})
}

// String is the frame as in the stacks of blocked code.
func (f Frame) String() string {
	return strings.Join([]string{f.File + ":" + strconv.Itoa(f.Line), f.Function}, " ")
}

// Prober looks at a process that says nothing, step by step. Take is called by another goroutine than Step.
type Prober struct {
	times       reading // nil: threadTimes
	stall       atomic.Pointer[Stall]
	at          time.Duration // of the last Look or Ask, since the process has said nothing
	asked, done bool
	starved     int  // how often in a row it got no processor time
	reported    bool // that it got none
}

// Step is called now and then, with for how long the process has said nothing. It returns what was found out once that exceeds limit, one time; else nil. It
// waits a little longer, by slack, for a stack. That a process is Starved, which a busy machine may seem to show of one that computes, counts when it is found twice, and is
// looked at again: then a second result may follow.
func (p *Prober) Step(pid int, mute, limit, slack time.Duration) *Stall {
	s := p.stall.Load()
	switch {
	case mute < limit/2:
		if s != nil {
			p.stall.Store(nil)
			p.asked, p.done, p.starved, p.reported = false, false, 0, false
		}
	case s == nil:
		p.look(pid, mute)
	case !p.asked && mute >= max(limit*3/4, p.at+limit/8):
		s.Ask()
		if s.Why() != Starved {
			p.asked, p.at = true, mute
			return nil
		}
		p.starved++
		p.look(pid, mute)
		if p.starved > 1 && mute >= limit && !p.reported {
			p.reported = true
			return s
		}
	case p.asked && !p.done && mute >= limit && (s.Why() == Stopped || len(s.Frames()) > 0 || mute >= max(limit, p.at)+slack):
		p.done = true
		return s
	}
	return nil
}

// look begins to look at the process.
func (p *Prober) look(pid int, mute time.Duration) {
	s := &Stall{pid: pid, times: p.times}
	p.stall.Store(s)
	p.at = mute
	s.Look()
}

// Take reports whether a line of stderr belongs to a stack that Step requested.
func (p *Prober) Take(line []byte) bool {
	s := p.stall.Load()
	return s != nil && s.Take(line)
}
