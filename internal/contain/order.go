package contain

import (
	"bytes"
	"cmp"
	"math/big"
	"strings"
)

// Compare orders two JSON scalars of the same type: numbers by value, text by its characters (code points), false before true.
// ok is false when they cannot be ordered: other types, or different ones.
func Compare(a, b []byte) (order int, ok bool) {
	a, b = bytes.TrimSpace(a), bytes.TrimSpace(b)
	if len(a) == 0 || len(b) == 0 {
		return 0, false
	}
	ca, errA := canonical(a)
	cb, errB := canonical(b)
	if errA != nil || errB != nil {
		return 0, false
	}
	switch ta, tb := typeOf(ca), typeOf(cb); {
	case ta != tb || ta == 'n':
		return 0, false
	case ta == '0':
		return compareNumbers(ca, cb)
	default: // `"…` by its text, "false" before "true"
		return strings.Compare(ca, cb), true
	}
}

// typeOf is '"' for text, '0' for numbers, 'b' for booleans, 'n' for null.
func typeOf(canonical string) byte {
	switch c := canonical[0]; c {
	case '"', 'n':
		return c
	case 't', 'f':
		return 'b'
	default:
		return '0'
	}
}

func compareNumbers(a, b string) (int, bool) {
	if a == b {
		return 0, true
	}
	if sa, sb := sign(a), sign(b); sa != sb || sa == 0 {
		return cmp.Compare(sa, sb), true
	}
	// Precise enough for every digit of both, within reason.
	prec := uint(min(4*(len(a)+len(b))+64, 1<<16))
	fa, _, errA := big.ParseFloat(a, 10, prec, big.ToNearestEven)
	fb, _, errB := big.ParseFloat(b, 10, prec, big.ToNearestEven)
	if errA != nil || errB != nil {
		return 0, false
	}
	return fa.Cmp(fb), true
}

func sign(number string) int {
	switch number[0] {
	case '-':
		return -1
	case '0':
		return 0
	}
	return 1
}
