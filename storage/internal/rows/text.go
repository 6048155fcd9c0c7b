package rows

import (
	"bytes"
	"strings"

	"understudy/internal/jsonscan"
)

// Text replaces what Postgres' text cannot hold by U+FFFD: NUL and invalid UTF-8. Every storage keeps the same.
func Text(s string) string {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// JSON replaces what jsonb cannot hold by U+FFFD: NUL and unpaired surrogates.
func JSON(data []byte) []byte {
	if bytes.IndexByte(data, 0) >= 0 {
		data = bytes.ReplaceAll(data, []byte{0}, []byte("\uFFFD"))
	}
	data = bytes.ToValidUTF8(data, []byte("\uFFFD"))
	if !bytes.Contains(data, []byte(`\u`)) {
		return data
	}
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); {
		if data[i] != '\\' || i+1 >= len(data) {
			out = append(out, data[i])
			i++
			continue
		}
		unit, ok := jsonscan.Escaped(data[i:])
		if !ok {
			out = append(out, data[i:i+2]...)
			i += 2
			continue
		}
		low, paired := jsonscan.Escaped(data[min(i+6, len(data)):])
		switch {
		case unit >= 0xd800 && unit < 0xdc00 && paired && low >= 0xdc00 && low < 0xe000:
			out = append(out, data[i:i+12]...)
			i += 12
		case unit == 0 || unit >= 0xd800 && unit < 0xe000:
			out = append(out, `\ufffd`...)
			i += 6
		default:
			out = append(out, data[i:i+6]...)
			i += 6
		}
	}
	return out
}
