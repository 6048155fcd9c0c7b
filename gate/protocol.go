package gate

import (
	"encoding/binary"
	"errors"

	"understudy/internal/child"
)

// Kinds of frames; wire.py has the same. A frame is a kind, the number of a call or stream (four bytes, big endian), and the payload: JSON, or a piece of
// a body.
const (
	toCall, toCancel, toPing, toStop                             = 1, 2, 3, 4
	fromHello, fromResult, fromPong, fromLog, fromStopped        = 11, 12, 13, 14, 15
	bothOpen, bothHeaders, bothBody, bothEnd, bothAbort          = 21, 22, 23, 24, 25
	bothCredit, bothText, bothBinary, bothClose                  = 26, 27, 28, 29
	theirs                                                uint32 = 1 << 31 // numbers of the process's own streams begin here
)

const (
	frameHead = 5
	// piece is the size of a part of a body, window how many bytes of a stream may be on their way.
	piece, window = 64 << 10, 1 << 20
)

func parse(body []byte) (kind byte, number uint32, payload []byte, err error) {
	if len(body) < frameHead {
		return 0, 0, nil, errors.New("a frame is too short")
	}
	return body[0], binary.BigEndian.Uint32(body[1:]), body[frameHead:], nil
}

// outbox is what is to be written to a process. Pieces of bodies are limited by the window of their stream, the rest by the number of calls.
type outbox struct{ *child.Outbox }

func (o outbox) send(kind byte, number uint32, payload []byte) error {
	return o.Add(func(b []byte) []byte {
		return append(binary.BigEndian.AppendUint32(append(b, kind), number), payload...)
	})
}
