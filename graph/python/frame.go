package python

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// maxFrame bounds a frame in either direction.
const maxFrame = 512 << 20

// readFrame reads one frame. Its bytes are the caller's to keep.
func readFrame(r *bufio.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return nil, fmt.Errorf("a frame of %d bytes is larger than the %d allowed", n, maxFrame)
	}
	if n <= 1<<20 {
		body := make([]byte, n)
		_, err := io.ReadFull(r, body)
		return body, err
	}
	// Do not trust a large length before the bytes are there.
	body := make([]byte, 0, 1<<20)
	for uint32(len(body)) < n {
		step := min(int(n)-len(body), max(len(body), 1<<20))
		at := len(body)
		body = append(body, make([]byte, step)...)
		if _, err := io.ReadFull(r, body[at:]); err != nil {
			return nil, err
		}
	}
	return body, nil
}

// openFrame reserves the length at the end of b; closeFrame, given what openFrame returned and where, fills it in.
func openFrame(b []byte) ([]byte, int) { return append(b, 0, 0, 0, 0), len(b) }

func closeFrame(b []byte, at int) ([]byte, error) {
	n := len(b) - at - 4
	if n > maxFrame {
		return b[:at], fmt.Errorf("a frame of %d bytes is larger than the %d allowed", n, maxFrame)
	}
	binary.BigEndian.PutUint32(b[at:], uint32(n))
	return b, nil
}
