package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"

	"understudy/id"
)

const (
	segmentBytes = 64 << 20  // a spill file is closed, and its disk space freed, when all readers have passed it
	blockBytes   = 256 << 10 // read at once by a reader that lags; a larger record is a block of its own
	writeBytes   = 1 << 20   // written at once
)

// spill holds unread records of lagging readers on disk, in order, once for all readers of a stream. Its files are unlinked when created, so none
// stay after the process. One goroutine writes (topic.spillOver); the lock of the topic guards the list of segments.
type spill struct {
	segments []*segment // oldest first
	tail     *segment   // owned by the writing goroutine
	buf      []byte     // the same
}

type segment struct {
	file   *os.File
	size   int64         // of its blocks
	total  *atomic.Int64 // of all spills of the bridge
	blocks []block
}

// block is the place of some records. Records and bytes are counted from the start of the stream.
type block struct {
	first, end int64 // records
	endBytes   int64
	at, length int64
}

// write appends records. first is the number of the first one, and firstBytes the bytes of the stream before it. Only add makes them part of the
// spill; otherwise the next write overwrites them.
func (l *spill) write(dir string, total *atomic.Int64, records []*Record, first, firstBytes int64) (*segment, []block, error) {
	if l.tail == nil || l.tail.size >= segmentBytes {
		s, err := newSegment(dir, total)
		if err != nil {
			return nil, nil, err
		}
		l.tail = s
	}
	s := l.tail
	l.buf = l.buf[:0]
	var blocks []block
	b := block{first: first, end: first, endBytes: firstBytes, at: s.size}
	for i, r := range records {
		l.buf = appendRecord(l.buf, r)
		b.end++
		b.endBytes += size(r)
		if b.length = s.size + int64(len(l.buf)) - b.at; b.length >= blockBytes || i == len(records)-1 {
			blocks = append(blocks, b)
			b = block{first: b.end, end: b.end, endBytes: b.endBytes, at: s.size + int64(len(l.buf))}
		}
	}
	if _, err := s.file.WriteAt(l.buf, s.size); err != nil {
		return nil, nil, fmt.Errorf("write unread stream records: %w", err)
	}
	if cap(l.buf) > 4*writeBytes {
		l.buf = nil // do not keep the buffer of one large state
	}
	return s, blocks, nil
}

// add makes written blocks visible to readers.
func (l *spill) add(s *segment, blocks []block) {
	last := blocks[len(blocks)-1]
	s.total.Add(last.at + last.length - s.size)
	s.size = last.at + last.length
	if n := len(l.segments); n == 0 || l.segments[n-1] != s {
		l.segments = append(l.segments, s)
	}
	s.blocks = append(s.blocks, blocks...)
}

// bytes returns the size of the spill on disk.
func (l *spill) bytes() (n int64) {
	for _, s := range l.segments {
		n += s.size
	}
	return n
}

// find returns the block that holds a record.
func (l *spill) find(record int64) (*segment, block) {
	for _, s := range l.segments {
		if n := len(s.blocks); n > 0 && record < s.blocks[n-1].end {
			i, _ := slices.BinarySearchFunc(s.blocks, record, func(b block, r int64) int {
				switch {
				case b.end <= r:
					return -1
				case b.first > r:
					return 1
				}
				return 0
			})
			return s, s.blocks[i]
		}
	}
	return nil, block{}
}

// release closes segments that only have records below a number, which all readers have read.
func (l *spill) release(below int64) {
	for len(l.segments) > 1 && l.segments[0].end() <= below {
		l.segments[0].close()
		l.segments = slices.Delete(l.segments, 0, 1)
	}
}

// close releases everything. A goroutine that is writing at the same time closes its own segment.
func (l *spill) close() {
	for _, s := range l.segments {
		s.close()
	}
	l.segments = nil
}

func (s *segment) end() int64 { return s.blocks[len(s.blocks)-1].end }

func newSegment(dir string, total *atomic.Int64) (*segment, error) {
	f, err := os.CreateTemp(dir, "understudy-stream-*")
	if err != nil {
		return nil, fmt.Errorf("create a file for unread stream records: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("unlink the file for unread stream records: %w", err)
	}
	return &segment{file: f, total: total}, nil
}

// close may be called more than once, by one goroutine at a time.
func (s *segment) close() {
	if s.file.Close() == nil {
		s.total.Add(-s.size)
	}
}

// read returns the records of a block. It may run while the segment is closed.
func (s *segment) read(b block) ([]*Record, error) {
	buf := make([]byte, b.length)
	if _, err := s.file.ReadAt(buf, b.at); err != nil {
		return nil, fmt.Errorf("read unread stream records: %w", err)
	}
	records := make([]*Record, 0, b.end-b.first)
	for len(buf) > 0 {
		r, rest, err := readRecord(buf)
		if err != nil {
			return nil, err
		}
		records, buf = append(records, r), rest
	}
	if int64(len(records)) != b.end-b.first {
		return nil, errSpilled
	}
	return records, nil
}

var errSpilled = errors.New("unread stream records on disk are damaged")

const (
	spilledKept = 4 << iota
	spilledEphemeral
	spilledAhead
	spilledSummarizer
	spilledData // Data is not nil
	spilledStored
)

// appendRecord appends a record in the form of a spill. Frame is left out: it is derived from the rest.
func appendRecord(dst []byte, r *Record) []byte {
	flags := byte(r.Kind)
	for _, f := range []struct {
		on   bool
		flag byte
	}{{r.Kept, spilledKept}, {r.Ephemeral, spilledEphemeral}, {r.Ahead, spilledAhead}, {r.Summarizer, spilledSummarizer}, {r.Data != nil, spilledData}, {r.Stored, spilledStored}} {
		if f.on {
			flags |= f.flag
		}
	}
	dst = append(dst, flags)
	for _, n := range []int64{r.Offset.MS, r.Offset.N, int64(r.Attempt), r.Index} {
		dst = binary.AppendVarint(dst, n)
	}
	for _, s := range []string{string(r.Run), r.Event, string(r.Checkpoint)} {
		dst = append(binary.AppendUvarint(dst, uint64(len(s))), s...)
	}
	return append(binary.AppendUvarint(dst, uint64(len(r.Data))), r.Data...)
}

// readRecord reads a record from the beginning of b. Its Data shares memory with b.
func readRecord(b []byte) (r *Record, rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil, errSpilled
	}
	flags := b[0]
	b = b[1:]
	number := func() int64 {
		n, l := binary.Varint(b)
		if l <= 0 {
			err, b = errSpilled, nil
			return 0
		}
		b = b[l:]
		return n
	}
	text := func() []byte {
		n, l := binary.Uvarint(b)
		if l <= 0 || n > uint64(len(b)-l) {
			err, b = errSpilled, nil
			return nil
		}
		t := b[l : l+int(n) : l+int(n)]
		b = b[l+int(n):]
		return t
	}
	r = &Record{
		Kind: Kind(flags & 3), Kept: flags&spilledKept != 0, Stored: flags&spilledStored != 0, Ephemeral: flags&spilledEphemeral != 0, Ahead: flags&spilledAhead != 0,
		Summarizer: flags&spilledSummarizer != 0, Offset: Offset{MS: number(), N: number()}, Attempt: int(number()), Index: number(),
		Run: id.Run(text()), Event: string(text()), Checkpoint: id.Checkpoint(text()), Data: text(),
	}
	if flags&spilledData == 0 {
		r.Data = nil
	}
	return r, b, err
}
