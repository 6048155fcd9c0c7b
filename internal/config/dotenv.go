package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/joho/godotenv"
)

// unterminated begins the parser's error for a quote without an end; the value follows.
const unterminated = "unterminated quoted value "

// parseEnv reads the lines of a dotenv file. Its mistake has the line, and nothing of what stands there: that may be a key.
func parseEnv(text []byte) (map[string]string, *Mistake) {
	text = append(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), '\n')
	parse := func(text []byte) (map[string]string, error) {
		vars, err := godotenv.UnmarshalBytes(text)
		if _, nameless := vars[""]; nameless && err == nil {
			err = errors.New("no name")
		}
		return vars, err
	}
	vars, err := parse(text)
	if err == nil {
		return vars, nil
	}
	line, at := stuck(text, parse)
	why := "write NAME=value"
	rest := bytes.TrimLeft(text[at:], "\n")
	line += len(text[at:]) - len(rest)
	switch message := err.Error(); {
	case strings.HasPrefix(message, unterminated):
		why = "the quote of its value has no end"
	case strings.HasPrefix(message, "unexpected character"):
		var char string
		if _, err := fmt.Sscanf(message, "unexpected character %q", &char); err == nil && char != "\n" {
			why = fmt.Sprintf("%q cannot be part of a name; %s", char, why)
		}
	}
	return nil, &Mistake{Line: line, Text: why}
}

// stuck returns where that begins which the parser cannot read, and its line. The parser does not say where it is, so it gets the text statement by
// statement. A text of which it reads everything has no such place.
func stuck(text []byte, parse func([]byte) (map[string]string, error)) (line, at int) {
	end := 0
	for end < len(text) {
		end += bytes.IndexByte(text[end:], '\n') + 1
		_, err := parse(text[at:end])
		if err == nil {
			at = end
			continue
		}
		value, open := strings.CutPrefix(err.Error(), unterminated)
		if !open || value == "" {
			break
		}
		// The value continues up to its quote, if that comes.
		for ; end < len(text); end++ {
			if text[end] == value[0] && text[end-1] != '\\' {
				break
			}
		}
	}
	return 1 + bytes.Count(text[:at], []byte("\n")), at
}
