package gateway

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"understudy/internal/fault"
)

// span is a part of a file, in bytes.
type span struct{ from, length int64 }

// byteRange is the form of the one range that is answered: first-last, first- or -length.
var byteRange = regexp.MustCompile(`^\s*(\d*)\s*-\s*(\d*)\s*$`)

// readRange returns the part that a header Range names of a file with so many bytes. A header with several ranges is ignored, as servers may: all is true. Errors:
// fault.Invalid for what is no range, fiber.ErrRequestedRangeNotSatisfiable for one that has no byte of the file.
func readRange(header string, size int64) (part span, all bool, err error) {
	unit, spec, found := strings.Cut(header, "=")
	switch {
	case !found:
		return span{}, false, fault.New(fault.Invalid, "Malformed range header.")
	case !strings.EqualFold(strings.TrimSpace(unit), "bytes"):
		return span{}, false, fault.New(fault.Invalid, "Only support bytes range")
	case strings.Contains(spec, ","):
		return span{0, size}, true, nil
	}
	m := byteRange.FindStringSubmatch(spec)
	if m == nil || m[1] == "" && m[2] == "" {
		return span{}, false, fault.New(fault.Invalid, "Range header: range must be requested")
	}
	first, last := position(m[1]), position(m[2])
	switch {
	case m[1] == "": // the last bytes
		first, last = max(size-last, 0), size-1
	case m[2] == "":
		last = size - 1
	case first > last && first < size:
		return span{}, false, fault.New(fault.Invalid, "Range header: start must be less than end")
	}
	last = min(last, size-1)
	if first > last {
		return span{}, false, fiber.ErrRequestedRangeNotSatisfiable
	}
	return span{first, last - first + 1}, false, nil
}

// position returns a number of digits; one that is larger than any file is as good as the largest.
func position(digits string) int64 {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil && digits != "" {
		return math.MaxInt64
	}
	return n
}
