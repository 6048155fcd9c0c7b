package python

import (
	"bytes"
	"math"
	"time"

	"understudy/graph"
)

// spanBegin reads what follows the call's number in a message `begin`.
func (d *decoder) spanBegin() graph.SpanBegin {
	return graph.SpanBegin{
		ID: d.uint(), Parent: d.uint(), Kind: graph.SpanKind(d.str()), Name: d.str(), NS: d.str(), Node: d.str(), Step: d.int(), Provider: d.str(), At: d.moment(), Input: d.content(),
	}
}

// spanEnd reads what follows the call's number in a message `end`.
func (d *decoder) spanEnd() graph.SpanEnd {
	s := graph.SpanEnd{ID: d.uint(), At: d.moment(), First: d.moment(), Status: graph.SpanStatus(d.str())}
	failure := graph.Failure{Type: d.str(), Message: d.str(), Detail: d.str()}
	if failure.Type != "" {
		s.Error = &failure
	}
	s.Model, s.Message = d.str(), d.str()
	if !d.null() {
		if d.array() != 4 {
			d.err = errBadMessage
			return s
		}
		s.Usage = &graph.SpanUsage{Input: d.count(), Output: d.count(), Total: d.count(), Cached: d.count()}
	}
	s.Output = d.content()
	return s
}

// moment reads microseconds since 1970; 0 is the zero time.
func (d *decoder) moment() time.Time {
	if us := d.uint(); us > 0 && us < math.MaxInt64/1000 {
		return time.UnixMicro(int64(us)).UTC()
	}
	return time.Time{}
}

// count reads a number of tokens.
func (d *decoder) count() int64 { return max(0, int64(d.int())) }

// content reads an input or output; nil for nil. It copies, for the frame may be large.
func (d *decoder) content() *graph.SpanContent {
	if d.null() {
		return nil
	}
	if d.array() != 2 {
		d.err = errBadMessage
		return nil
	}
	return &graph.SpanContent{JSON: bytes.Clone(d.bytes()), Cut: d.bool()}
}
