package child

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// leastTicks is how much processor time a thread that computes gets at least between Look and Ask, also on a machine that is busy; a tick is 10 ms.
const leastTicks = 3

// Look notes how much processor time the threads of the process have used.
func (s *Stall) Look() { s.first, _, _ = s.read() }

func (s *Stall) read() (ticks map[int]uint64, state byte, ready bool) {
	if s.times != nil {
		return s.times(s.pid)
	}
	return threadTimes(s.pid)
}

// Ask finds what holds the process up, and requests the stack of the thread that used the most processor time since Look, or else of the first thread.
func (s *Stall) Ask() {
	now, state, ready := s.read()
	busiest, most := s.pid, uint64(0)
	for thread, ticks := range now {
		if used := ticks - min(ticks, s.first[thread]); used > most {
			busiest, most = thread, used
		}
	}
	switch {
	case state == 'T', state == 't':
		s.why = Stopped
		return // the signal would wait until it continues
	case most >= leastTicks:
		s.why = Busy
	case ready:
		s.why = Starved
		return // no code is the cause
	default:
		busiest = s.pid
	}
	if catches(s.pid, DumpSignal) {
		s.asked.Store(true)
		_ = unix.Tgkill(s.pid, busiest, DumpSignal)
	}
}

// threadTimes is the reading of the kernel.
func threadTimes(pid int) (ticks map[int]uint64, state byte, ready bool) {
	ticks = map[int]uint64{}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range tasks {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		thread, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // the name before may have blanks
		if len(fields) < 13 {
			continue
		}
		user, _ := strconv.ParseUint(string(fields[11]), 10, 64)
		system, _ := strconv.ParseUint(string(fields[12]), 10, 64)
		ticks[thread] = user + system
		ready = ready || fields[0][0] == 'R'
		if thread == pid {
			state = fields[0][0]
		}
	}
	return ticks, state, ready
}

// catches reports whether a process has a handler of a signal: without one the signal would end it, as before its code runs.
func catches(pid int, signal syscall.Signal) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range bytes.Lines(text) {
		if mask, ok := bytes.CutPrefix(line, []byte("SigCgt:")); ok {
			caught, err := strconv.ParseUint(string(bytes.TrimSpace(mask)), 16, 64)
			return err == nil && caught&(1<<(signal-1)) != 0
		}
	}
	return false
}
