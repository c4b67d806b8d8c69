import sys, ast
key = [ast.literal_eval(l) for l in open(sys.argv[1]).read().splitlines() if l.startswith('(')]
votes = dict(v.split('=') for v in sys.argv[2].split()); a = b = 0
for n, k, r, s in key:
    v = votes.get(str(n))
    if v: w = s[0] if v == 'L' else s[1]; a += w == 'A'; b += w == 'B'; print(n, k, r, w, end='; ')
print('\nA', a, 'B', b, open(sys.argv[1]).read().splitlines()[-1])
