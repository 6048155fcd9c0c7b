// Package moving opens what conversations are imported from and exported to; package transfer moves them.
package moving
