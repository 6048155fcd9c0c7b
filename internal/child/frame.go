package child

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// MaxFrame is the maximum size of a frame in either direction.
const MaxFrame = 512 << 20

// ReadFrame reads one frame. The caller owns its bytes.
func ReadFrame(r *bufio.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > MaxFrame {
		return nil, fmt.Errorf("a frame of %d bytes is larger than the %d allowed", n, MaxFrame)
	}
	// A large length is trusted only once its first bytes have arrived. The frame is allocated once: growing it would need several times its
	// size, and frames carry whole states.
	const trusted = 1 << 20
	body := make([]byte, min(n, trusted))
	if _, err := io.ReadFull(r, body); err != nil || n <= trusted {
		return body, err
	}
	whole := make([]byte, n)
	_, err := io.ReadFull(r, whole[copy(whole, body):])
	return whole, err
}

// openFrame reserves the length of a frame at the end of b, and returns where; closeFrame sets it.
func openFrame(b []byte) ([]byte, int) { return append(b, 0, 0, 0, 0), len(b) }

// closeFrame sets the length of the frame that openFrame opened at the offset. A frame that is too large is removed.
func closeFrame(b []byte, at int) ([]byte, error) {
	n := len(b) - at - 4
	if n > MaxFrame {
		return b[:at], fmt.Errorf("a frame of %d bytes is larger than the %d allowed", n, MaxFrame)
	}
	binary.BigEndian.PutUint32(b[at:], uint32(n))
	return b, nil
}
