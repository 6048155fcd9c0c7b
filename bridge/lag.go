package bridge

import (
	"slices"
	"sync"
)

const (
	// spillAt is the fraction of LagBytes in memory above which the oldest records move to disk.
	spillAt = 16
	// spillShare is how many threads may use all of their SpillBytes.
	spillShare = 8
)

// spillers are the goroutines that move unread records to disk.
type spillers struct {
	mu    sync.Mutex
	ended bool
	group sync.WaitGroup
}

// begin starts a goroutine, unless the bridge is closed.
func (s *spillers) begin(work func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.group.Go(work)
	}
	return !s.ended
}

// end waits for all goroutines. Once running, they do not wait for readers.
func (s *spillers) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.group.Wait()
}

// start returns the number of the first live record in memory. Earlier ones are on disk, if a reader still needs them.
func (p *topic) start() int64 { return p.end - int64(len(p.live)) }

// slowest returns the position of the reader that is furthest behind.
func (p *topic) slowest() (cursor, bytes int64) {
	cursor, bytes = p.end, p.endBytes
	for _, s := range p.subs {
		if s.cursor < cursor {
			cursor, bytes = s.cursor, s.cursorBytes
		}
	}
	return cursor, bytes
}

// trim drops live records in memory that all readers have read.
func (p *topic) trim() {
	if cursor, bytes := p.slowest(); cursor > p.start() {
		// A new slice, so that the memory of the earlier records is released.
		p.live, p.liveBytes = slices.Clone(p.live[cursor-p.start():]), p.endBytes-bytes
	}
}

// release frees the files that all subscriptions have read.
func (p *topic) release() {
	if p.spilled == nil {
		return
	}
	if cursor, _ := p.slowest(); cursor >= p.start() {
		p.spilled.close()
		p.spilled = nil
	} else {
		p.spilled.release(cursor)
	}
}

// dropSlow drops subscriptions with more unread bytes than above.
func (p *topic) dropSlow(above int64) {
	for _, s := range slices.Backward(p.subs) { // remove moves the last one into the gap
		if p.endBytes-s.cursorBytes > above {
			p.drop(s, ErrSlow)
		}
	}
	p.trim()
}

// spillOver moves the oldest live records to disk until few are left in memory. The publisher does not wait for it.
func (p *topic) spillOver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.spilling = false }()
	opts := &p.owner.opts
	for low := opts.LagBytes / spillAt / 2; ; {
		p.makeRoom(min(p.liveBytes, writeBytes)) // first: it may drop the last reader
		if p.trim(); p.liveBytes <= low || p.owner.isClosed() {
			return
		}
		n, bytes := 0, int64(0)
		for n < len(p.live) && (n == 0 || bytes < writeBytes) {
			bytes += size(p.live[n])
			n++
		}
		if p.spilled == nil {
			p.spilled = &spill{}
		}
		log, records, first, firstBytes := p.spilled, p.live[:n:n], p.start(), p.endBytes-p.liveBytes
		p.mu.Unlock()
		s, blocks, err := log.write(opts.Dir, &p.owner.spilled, records, first, firstBytes)
		p.mu.Lock()
		switch {
		case p.start() != first || p.spilled != log: // all readers have read them, or were dropped
			if s != nil && p.spilled != log {
				s.close()
			}
		case err != nil:
			opts.Log.Error("cannot write unread stream records to disk; readers beyond the memory limit are dropped", "folder", opts.Dir, "error", err)
			p.noDisk = true
			return
		default:
			log.add(s, blocks)
			p.live, p.liveBytes = slices.Clone(p.live[n:]), p.liveBytes-bytes
		}
	}
}

// makeRoom drops the subscriptions that are furthest behind until there is room for some more bytes on disk.
func (p *topic) makeRoom(bytes int64) {
	opts := &p.owner.opts
	for p.spilled != nil && len(p.spilled.segments) > 0 &&
		(p.spilled.bytes()+bytes > opts.SpillBytes || p.owner.spilled.Load()+bytes > spillShare*opts.SpillBytes) {
		end := p.spilled.segments[0].end()
		opts.Log.Warn("disk limit for unread stream records reached; slowest readers are dropped", "bytes", p.spilled.bytes())
		for _, s := range slices.Backward(p.subs) {
			if s.cursor < end {
				p.drop(s, ErrSlow)
			}
		}
	}
}

// takeSpilled returns the next records of a reader from disk. It is called with the lock, and releases it while reading.
func (s *subscription) takeSpilled() ([]*Record, error) {
	p := s.topic
	file, b := p.spilled.find(s.cursor)
	p.mu.Unlock()
	records, err := file.read(b)
	p.mu.Lock()
	if gone := s.gone(); gone != nil {
		return nil, gone // dropped or closed meanwhile
	}
	if err != nil {
		s.opts.Log.Error("stream reader dropped", "error", err)
		p.drop(s, ErrSlow)
		return nil, ErrSlow
	}
	records = records[s.cursor-b.first:]
	s.cursor, s.cursorBytes = b.end, b.endBytes
	if s.interrupted && b.end > s.until {
		records = records[:int64(len(records))-(b.end-s.until)]
		s.cursor, s.cursorBytes = s.until, s.untilBytes
	}
	if s.cursor == p.end {
		p.caughtUp()
	}
	p.release()
	return records, nil
}
