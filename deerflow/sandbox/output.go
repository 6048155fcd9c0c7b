package sandbox

import (
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
)

// capture keeps the beginning and the end of what is written to it, and counts the rest.
type capture struct {
	limit int // bytes of each end

	mu     sync.Mutex
	head   []byte
	tail   []byte // a ring
	at     int    // where the oldest byte of a full ring is
	total  int64
	closed bool // what comes now belongs to no answer
}

func (c *capture) Write(b []byte) (int, error) {
	n := len(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return n, nil
	}
	c.total += int64(n)
	if room := c.limit - len(c.head); room > 0 {
		take := min(room, len(b))
		c.head = append(c.head, b[:take]...)
		b = b[take:]
	}
	if len(b) > c.limit {
		b = b[len(b)-c.limit:]
	}
	for len(b) > 0 {
		if len(c.tail) < c.limit {
			take := min(c.limit-len(c.tail), len(b))
			c.tail = append(c.tail, b[:take]...)
			b = b[take:]
			continue
		}
		take := copy(c.tail[c.at:], b)
		c.at = (c.at + take) % c.limit
		b = b[take:]
	}
	return n, nil
}

// end returns what was kept. whole reports that this is everything.
func (c *capture) end() (head, tail string, whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	ring := string(c.tail[c.at:]) + string(c.tail[:c.at])
	if c.total <= int64(len(c.head)+len(c.tail)) {
		return string(c.head) + ring, "", true
	}
	// A path that is cut in two could not be replaced.
	head = string(c.head)
	if i := strings.LastIndexAny(head, " \t\n"); i >= len(head)-edge {
		head = head[:i+1]
	} else {
		head = head[:max(0, len(head)-edge)]
	}
	if i := strings.IndexAny(ring, " \t\n"); i >= 0 && i < edge {
		ring = ring[i+1:]
	} else {
		ring = ring[min(edge, len(ring)):]
	}
	return head, ring, false
}

const edge = 4096 // bytes: longer than a path

// middle joins two ends of a text to at most limit characters. Between is what stands for what is left out.
func middle(head, tail string, whole bool, limit int) string {
	if whole && utf8.RuneCountInString(head) <= limit {
		return head
	}
	keep := max(0, limit-80)
	if whole {
		tail = head
	}
	first, last := Head(head, keep/2), lastOf(tail, keep-keep/2)
	if !whole {
		return first + "\n... [middle truncated] ...\n" + last
	}
	return first + fmt.Sprintf("\n... [middle truncated: %d chars skipped] ...\n", utf8.RuneCountInString(head)-keep) + last
}

func lastOf(text string, characters int) string {
	for i, n := len(text), 0; i > 0; n++ {
		if n == characters {
			return text[i:]
		}
		_, size := utf8.DecodeLastRuneInString(text[:i])
		i -= size
	}
	return text
}
