#!/usr/bin/env bash
# Creates a repository, clones it, works in it, collects and checks it: git_work.sh DIRECTORY
# Everything that goes into an object id is fixed, so two runs print the same.
set -euo pipefail
cd "$1"
export HOME="$PWD" GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=c GIT_COMMITTER_EMAIL=c@example.org
export GIT_AUTHOR_DATE="2020-01-01T00:00:00Z" GIT_COMMITTER_DATE="2020-01-01T00:00:00Z"
git config --global init.defaultBranch main
git config --global gc.auto 0

git init -q origin
cd origin
for round in $(seq 1 25); do
    mkdir -p "dir-$((round % 5))/sub"
    for file in $(seq 1 8); do
        seq "$round" "$((round * file * 20))" > "dir-$((round % 5))/sub/file-$file.txt"
    done
    seq -f "%030.0f" 1 "$((round * 500))" > large.dat
    [ "$round" = 7 ] && ln -s large.dat link
    [ "$round" = 9 ] && chmod +x dir-1/sub/file-1.txt
    git add -A
    git commit -qm "round $round"
done
git branch side HEAD~10
cd ..

git clone -q --no-hardlinks origin clone
cd clone
git fsck --full --strict
git checkout -q -b side origin/side
echo side > side.txt
git add -A
git commit -qm side
git checkout -q main
git merge -q --no-ff -m merge side -X ours
git gc -q --aggressive --prune=now
git fsck --full --strict
git status --porcelain
git push -q origin side:pushed
cd ..
git -C origin fsck --full --strict
git -C origin rev-parse main pushed
git -C clone rev-parse main side
git -C clone ls-tree -r main | sha256sum
(cd clone && git ls-files -z | sort -z | xargs -0 cat | sha256sum)
