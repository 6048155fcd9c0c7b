package relational

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"

	"understudy/bridge"
	"understudy/id"
)

// Limits of a pack. A record of packBytes or more is one of its own. packSpan bounds, in
// milliseconds, how far before an offset a pack with a record above it begins.
const (
	packBytes = 16 << 10
	packSpan  = 1000
)

// Pack is a row of stream_records with consecutive records of one attempt of a run: a row for each
// would cost more than everything else about a token.
//
// The columns ms and n have the offset of the first record, last_ms and last_n of the last, and
// records their number. Rows that older servers wrote are single records: their number is 0. Those
// servers do not read packs, and by PackEvent and PackFlags leave them out.
type Pack struct {
	Run         id.Run
	Attempt     int
	First, Last bridge.Offset
	Records     int
	Data        []byte
}

// Columns of a pack that only rows of single records use. Clients do not see events of this name,
// nor such that are ephemeral.
const (
	PackEvent = "tools"
	PackFlags = flagKept | flagEphemeral
)

// packed divides records into packs, in order.
func packed(records []*bridge.Record) (packs []Pack) {
	size := 0
	for _, r := range records {
		if size += len(r.Data) + 32; size > packBytes {
			break
		}
	}
	plain, packed := make([]byte, 0, size), make([]byte, s2.MaxEncodedLen(size))
	for i := 0; i < len(records); {
		first := records[i]
		p := Pack{Run: first.Run, Attempt: first.Attempt, First: first.Offset}
		plain = plain[:0]
		before := &bridge.Record{Offset: bridge.Offset{MS: first.Offset.MS}}
		for ; i < len(records); i++ {
			r := records[i]
			if p.Records > 0 && (r.Run != p.Run || r.Attempt != p.Attempt || len(plain)+len(r.Data) > packBytes ||
				r.Offset.Compare(before.Offset) <= 0 || r.Offset.MS-p.First.MS > packSpan) {
				break
			}
			plain = appendRecord(plain, r, before)
			before, p.Last = r, r.Offset
			p.Records++
		}
		packed = s2.Encode(packed[:cap(packed)], plain)
		p.Data = bytes.Clone(packed) // not the rest of the buffer
		packs = append(packs, p)
	}
	return packs
}

// appendRecord appends a record that follows another of its pack: the kind, the flags, and what
// differs. A field is preceded by its length plus one; 0 stands for that of the record before, and
// in the case of data for none.
func appendRecord(b []byte, r, before *bridge.Record) []byte {
	field := func(s, was string) {
		if s == was {
			b = append(b, 0)
			return
		}
		b = append(binary.AppendUvarint(b, uint64(len(s))+1), s...)
	}
	b = binary.AppendUvarint(b, uint64(r.Kind))
	b = binary.AppendUvarint(b, uint64(RecordFlags(r)))
	b = binary.AppendVarint(b, r.Offset.MS-before.Offset.MS)
	b = binary.AppendVarint(b, r.Offset.N-before.Offset.N)
	b = binary.AppendVarint(b, r.Index-before.Index)
	field(r.Event, before.Event)
	field(string(r.Checkpoint), string(before.Checkpoint))
	if r.Data == nil {
		return append(b, 0)
	}
	return append(binary.AppendUvarint(b, uint64(len(r.Data))+1), r.Data...)
}

var errDamagedPack = errors.New("the data of the row is damaged")

// unpacked returns the records of a pack. They share memory.
func unpacked(p Pack) ([]*bridge.Record, error) {
	b, err := s2.Decode(nil, p.Data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamagedPack, err)
	}
	d := packDecoder{b: b}
	if p.Records < 1 || p.Records > len(b) {
		return nil, errDamagedPack
	}
	records := make([]bridge.Record, p.Records)
	out := make([]*bridge.Record, p.Records)
	before := &bridge.Record{Offset: bridge.Offset{MS: p.First.MS}}
	for i := range records {
		r := &records[i]
		r.Run, r.Attempt = p.Run, p.Attempt
		r.Kind = bridge.Kind(d.uvarint())
		setFlags(r, int64(d.uvarint()))
		r.Offset.MS = before.Offset.MS + d.varint()
		r.Offset.N = before.Offset.N + d.varint()
		r.Index = before.Index + d.varint()
		r.Event, r.Checkpoint = before.Event, before.Checkpoint
		if v := d.field(); v != nil {
			r.Event = string(v)
		}
		if v := d.field(); v != nil {
			r.Checkpoint = id.Checkpoint(v)
		}
		r.Data = d.field()
		before, out[i] = r, r
	}
	if d.failed || len(d.b) > 0 {
		return nil, errDamagedPack
	}
	return out, nil
}

// packDecoder reads what appendRecord wrote. After a failure it returns zeros.
type packDecoder struct {
	b      []byte
	failed bool
}

func (d *packDecoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	return advance(d, v, n)
}

func (d *packDecoder) varint() int64 {
	v, n := binary.Varint(d.b)
	return advance(d, v, n)
}

func advance[T int64 | uint64](d *packDecoder, v T, n int) T {
	if n <= 0 {
		d.failed, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// field returns nil for a field without a length of its own.
func (d *packDecoder) field() []byte {
	n := d.uvarint()
	if n == 0 {
		return nil
	}
	if n--; n > uint64(len(d.b)) {
		d.failed, d.b = true, nil
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

// merger calls fn with the records of packs above an offset, in order and each once. Packs are
// added in the order of their first records. They overlap where a record was stored under a later
// offset than it was published, and where attempts of a run did.
type merger struct {
	after bridge.Offset
	fn    func(*bridge.Record) error
	ready []*bridge.Record // in order
}

func (m *merger) add(records []*bridge.Record) error {
	if len(records) == 0 {
		return nil
	}
	if err := m.until(records[0].Offset); err != nil {
		return err
	}
	overlap := len(m.ready) > 0
	for _, r := range records {
		if r.Offset.Compare(m.after) > 0 {
			m.ready = append(m.ready, r)
		}
	}
	if overlap {
		slices.SortStableFunc(m.ready, func(a, b *bridge.Record) int { return a.Offset.Compare(b.Offset) })
		m.ready = slices.CompactFunc(m.ready, func(a, b *bridge.Record) bool { return a.Offset == b.Offset && a.Run == b.Run })
	}
	return nil
}

// until passes the records below an offset on.
func (m *merger) until(offset bridge.Offset) error {
	for len(m.ready) > 0 && m.ready[0].Offset.Compare(offset) < 0 {
		r := m.ready[0]
		m.ready = m.ready[1:]
		if err := m.fn(r); err != nil {
			return err
		}
	}
	return nil
}

// flush passes all on: no more packs are added.
func (m *merger) flush() error {
	for _, r := range m.ready {
		if err := m.fn(r); err != nil {
			return err
		}
	}
	return nil
}
