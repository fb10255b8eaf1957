// The session with gomemcache, which speaks the text protocol.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

func main() {
	client := memcache.New(os.Args[1])
	client.Timeout = 5 * time.Second
	done := func(what string, err error) { fmt.Printf("%s: %v\n", what, err) }
	get := func(key string) *memcache.Item {
		item, err := client.Get(key)
		if err != nil {
			done("get "+key, err)
			return nil
		}
		fmt.Printf("get %s: %q flags %d\n", key, short(item.Value), item.Flags)
		return item
	}
	item := func(key, value string) *memcache.Item {
		return &memcache.Item{Key: key, Value: []byte(value), Flags: 7}
	}
	done("ping", client.Ping())
	done("flush", client.FlushAll())
	done("set", client.Set(item("k", "value")))
	get("k")
	get("none")
	done("add", client.Add(item("k", "other")))
	done("replace", client.Replace(item("k", "new")))
	done("replace none", client.Replace(item("none", "new")))
	done("append", client.Append(item("k", "er")))
	done("prepend", client.Prepend(item("k", "re")))
	many, err := client.GetMulti([]string{"k", "none"})
	fmt.Printf("multi: %d %v\n", len(many), err)
	done("set n", client.Set(item("n", "41")))
	number, err := client.Increment("n", 1)
	fmt.Printf("increment: %d %v\n", number, err)
	number, err = client.Decrement("n", 100)
	fmt.Printf("decrement: %d %v\n", number, err)
	_, err = client.Increment("none", 1)
	done("increment none", err)
	seen := get("k")
	seen.Value = []byte("by cas")
	done("cas", client.CompareAndSwap(seen))
	seen.Value = []byte("too late")
	done("cas", client.CompareAndSwap(seen))
	get("k")
	done("touch", client.Touch("k", 100))
	done("touch none", client.Touch("none", 100))
	_, err = client.GetAndTouch("k", 100)
	done("get and touch", err)
	done("long", client.Set(item("long", strings.Repeat("y", 1000000))))
	get("long")
	done("delete", client.Delete("k"))
	done("delete", client.Delete("k"))
	done("big", client.Set(item("big", strings.Repeat("z", 1048576))))
}

func short(value []byte) string {
	if len(value) > 100 {
		return fmt.Sprintf("%d bytes", len(value))
	}
	return string(value)
}
