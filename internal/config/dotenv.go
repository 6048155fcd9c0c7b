package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/joho/godotenv"
)

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
	// The parser does not say where it is, and what it could not read begins after the last lines that it could.
	line, at := 1, 0
	for begin, n := 0, 1; begin < len(text); n++ {
		begin += bytes.IndexByte(text[begin:], '\n') + 1
		if _, err := parse(text[:begin]); err == nil {
			line, at = n+1, begin
		}
	}
	why := "write NAME=value"
	rest := bytes.TrimLeft(text[at:], "\n")
	line += len(text[at:]) - len(rest)
	switch message := err.Error(); {
	case strings.HasPrefix(message, "unterminated quoted value"):
		why = "the quote of its value has no end"
	case strings.HasPrefix(message, "unexpected character"):
		var char string
		if _, err := fmt.Sscanf(message, "unexpected character %q", &char); err == nil && char != "\n" {
			why = fmt.Sprintf("%q cannot be part of a name; %s", char, why)
		}
	}
	return nil, &Mistake{Line: line, Text: why}
}
